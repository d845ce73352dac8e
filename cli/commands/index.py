# SPDX-License-Identifier: Apache-2.0
"""`reput index …`: all indexes anew from the log, and queues that nobody needs any more.

A rebuild is done by the running Indexer, or with --data-dir without any service (cli/commands/offline_rebuild.py).
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from reput.indexer.v1.index_service_pb2 import RemoveQueuesResponse, ReputState
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cli.connection import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output import JsonOption, errors, print_fields, print_rows, warning_line

index = typer.Typer(no_args_is_help=True, help="Indexes: build them again, drop what nobody needs.")

QUEUE_COLUMNS = ("topic", "queue_id", "max_queue_offset")
TOPIC_COUNT_SHOWN = 10
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell which queues they are, remove nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

Advance = Callable[[int, int, int], None]
"""Takes bytes done, bytes in all, and records done."""


@index.command("rebuild")
def rebuild_indexes(
    context: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False, help="Without any service, in this directory of a store."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="With --data-dir: the Indexer's TOML file.")
    ] = None,
    yes: Yes = False,
    as_json: JsonOption = False,
) -> None:
    """Drop all indexes and build them again from the log. Consumer offsets and the log stay as they are.

    The running Indexer does it, and refuses calls that need the indexes until it is done; a Ctrl-C ends only the
    display. With --data-dir no CommitLog, Indexer or RocketMQ may use the directory; a Ctrl-C leaves what is built, and
    the Indexer goes on from there. The Indexer's settings come from --config and the environment, as for `reput serve`.

    Exit code 6 if the log is damaged: the indexes then hold what lies before the damage.
    """
    if not yes:
        _ask("Drop all indexes and build them again?")
    if data_dir is None:
        _rebuild_online(context, as_json=as_json)
    else:
        _rebuild_offline(data_dir, config, as_json=as_json)


@index.command("remove-expired")
def remove_expired(context: typer.Context, dry_run: DryRun = False, as_json: JsonOption = False) -> None:
    """Remove queues whose messages have all expired.

    A queue keeps its last file otherwise, however old it is. The queues of delayed messages stay. A later message
    begins its queue anew, at the next queue offset.
    """
    with client_of(context) as client:
        _print_removed(client.admin.remove_expired_queues(dry_run=dry_run), as_json=as_json)


@index.command("remove-unused")
def remove_unused(
    context: typer.Context, dry_run: DryRun = False, yes: Yes = False, as_json: JsonOption = False
) -> None:
    """Remove queues of topics that were deleted.

    Of all topics that the CommitLog does not know any more, in fact, except those that the store itself needs. Their
    messages can't be read by queue any more; until the log deletes them they are found by key, and by id if they have
    a key. A rebuild brings the queues back.
    """
    with client_of(context) as client:
        removed = client.admin.remove_unused_queues(dry_run=True)
        if removed.removed_queue_count and not dry_run:
            if not yes:
                _ask(_question(removed))
            removed = client.admin.remove_unused_queues(dry_run=False)
    _print_removed(removed, as_json=as_json)


def _question(removed: RemoveQueuesResponse) -> str:
    topics = sorted({queue.topic for queue in removed.queues})
    is_part = len(topics) > TOPIC_COUNT_SHOWN or len(removed.queues) < removed.removed_queue_count
    rest = " and others" if is_part else ""
    return f"Remove {removed.removed_queue_count} queues of {', '.join(topics[:TOPIC_COUNT_SHOWN])}{rest}?"


def _print_removed(removed: RemoveQueuesResponse, *, as_json: bool) -> None:
    queues = [{name: getattr(queue, name) for name in QUEUE_COLUMNS} for queue in removed.queues]
    fields = {
        "removed_queue_count": removed.removed_queue_count,
        "deleted_queue_file_count": removed.deleted_queue_file_count,
        "freed_bytes": removed.freed_bytes,
    }
    if as_json:
        print_fields({**fields, "queues": queues}, as_json=True)
        return
    if queues:
        print_rows(queues, QUEUE_COLUMNS, as_json=False)
    if len(queues) < removed.removed_queue_count:
        warning_line(f"only the first {len(queues)} queues are shown")
    print_fields(fields, as_json=False)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise CommandFailed("NOT_CONFIRMED", "say --yes where nobody can be asked", code=ExitCode.USAGE)
    if not typer.confirm(question, err=True):
        raise CommandFailed("NOT_CONFIRMED", "nothing was changed", code=ExitCode.USAGE)


def _rebuild_online(context: typer.Context, *, as_json: bool) -> None:
    with client_of(context) as client, bar_of_records() as advance:
        last_error = ""
        for state in client.admin.rebuild_indexes():
            advance(state.rebuilt_physical_offset, state.target_physical_offset, state.applied_record_count)
            if state.error and state.error != last_error:
                warning_line(state.error)
            last_error = state.error
    if not state.is_done:
        name = ReputState.Name(state.state).removeprefix("REPUT_STATE_")
        raise CommandFailed("NOT_REBUILT", f"the Indexer is {name}: {state.error}", code=ExitCode.DAMAGED)
    fields = {"rebuilt_physical_offset": state.rebuilt_physical_offset, "record_count": state.applied_record_count}
    print_fields(fields, as_json=as_json)


def _rebuild_offline(data_dir: Path, config: Path | None, *, as_json: bool) -> None:
    from cli.commands.offline_rebuild import (
        rebuild_offline,  # brings numpy along, which other commands need not wait for
    )

    with bar_of_records() as advance:
        fields = rebuild_offline(data_dir, config, advance)
    if fields["log_end"] == "torn tail":
        warning_line(
            f"the log ends with a torn tail at {fields['end_physical_offset']} ({fields['log_end_reason']}); "
            "the CommitLog cuts it off at its next start"
        )
    else:
        del fields["log_end_reason"]
    print_fields({"data_dir": str(data_dir), **fields}, as_json=as_json)


@contextlib.contextmanager
def bar_of_records() -> Iterator[Advance]:
    """Show a bar with percent, records per second and the time that is left, on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("rebuild", total=None, rate="")

        def advance(done: int, total: int, record_count: int) -> None:
            elapsed_s = bar.tasks[0].elapsed or 0
            rate = f"{record_count / elapsed_s:,.0f} records/s" if elapsed_s else ""
            bar.update(task, completed=done, total=total, rate=rate)

        yield advance
