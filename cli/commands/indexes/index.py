# SPDX-License-Identifier: Apache-2.0
"""`reput index …`: rebuild of all indexes from the log, and removal of queues that are not needed any more.

The running Indexer does a rebuild, or with --data-dir this process without any service (offline_rebuild.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.typed.confirm import YesOption, confirm
from cli.commands.typed.group import command_group
from cli.connection.addresses import place_of
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, warning_line
from cli.output.progress import progress
from cli.output.tables import print_fields, print_rows
from libs.figures import many, size_text

if TYPE_CHECKING:
    from reput.indexer.v1.index_service_pb2 import RemoveQueuesResponse

index = command_group("Indexes: build them again, remove queues that are not needed.")

QUEUE_COLUMNS = ("topic", "queue_id", "max_queue_offset")
TOPIC_COUNT_SHOWN = 10
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the queues, remove nothing.")]
Yes = Annotated[bool, YesOption]


@index.command("rebuild")
def rebuild_indexes(
    context: typer.Context,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False, help="Rebuild without a service, in this directory of a store."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="With --data-dir: the Indexer's TOML file.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="No effect: nothing is lost, so the command does not ask.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop all indexes and build them again from the log. Consumer offsets and the log stay as they are.

    The running Indexer does it, and refuses calls that need the indexes until it is done; a Ctrl-C ends only the
    display. With --data-dir no CommitLog, Indexer or RocketMQ may use the directory; a Ctrl-C leaves the part that is
    built, and the Indexer continues there. The Indexer's settings come from --config and the environment, as for
    `reput serve`.

    Exit code 6 if the log is damaged: the indexes then have the records before the damage.

    Example: reput index rebuild
    """
    del yes
    if data_dir is None:
        _rebuild_online(context, as_json=as_json)
    else:
        _rebuild_offline(data_dir, config, as_json=as_json)


@index.command("remove-expired")
def remove_expired(context: typer.Context, dry_run: DryRun = False, as_json: JsonOption = False) -> None:
    """Remove queues whose messages have all expired.

    Otherwise a queue keeps its last file, at any age. The queues of delayed messages stay. A later message
    begins its queue anew, at the next queue offset.

    Example: reput index remove-expired --dry-run
    """
    with client_of(context, "indexer") as client:
        _print_removed(client.admin.remove_expired_queues(dry_run=dry_run), as_json=as_json)


@index.command("remove-unused")
def remove_unused(
    context: typer.Context, dry_run: DryRun = False, yes: Yes = False, as_json: JsonOption = False
) -> None:
    """Remove queues of topics that were deleted.

    These are all topics that the CommitLog does not know any more, except topics that the store itself needs. It frees
    space: no reader gets their messages since the deletion. A rebuild brings the files back. If such a topic is created
    again its queue offsets continue where they ended, so groups and other readers keep their places and get each new
    message.

    Example: reput index remove-unused --dry-run
    """
    with client_of(context, "indexer") as client:
        removed = client.admin.remove_unused_queues(dry_run=True)
        if removed.removed_queue_count and not dry_run:
            confirm(prospect(removed), place=place_of(context.find_root().obj, "indexer"), yes=yes)
            removed = client.admin.remove_unused_queues(dry_run=False)
    _print_removed(removed, as_json=as_json)


def prospect(removed: RemoveQueuesResponse) -> str:
    """Return the queues that would be removed, from the answer of a dry run."""
    topics = sorted({queue.topic for queue in removed.queues})
    is_part = len(topics) > TOPIC_COUNT_SHOWN or len(removed.queues) < removed.removed_queue_count
    rest = " and others" if is_part else ""
    queues = f"{many(removed.removed_queue_count, 'queue')} ({size_text(removed.freed_bytes)})"
    return f"remove {queues} of {', '.join(topics[:TOPIC_COUNT_SHOWN])}{rest}"


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


def _rebuild_online(context: typer.Context, *, as_json: bool) -> None:
    with client_of(context, "indexer") as client, progress("rebuild", noun="records") as meter:
        last_error = ""
        for state in client.admin.rebuild_indexes():
            done, total = state.rebuilt_physical_offset, state.target_physical_offset
            meter.show(done, count=state.applied_record_count, total=total)
            if state.error and state.error != last_error:
                warning_line(state.error)
            last_error = state.error
    if not state.is_done:
        from reput.indexer.v1.index_service_pb2 import ReputState

        name = ReputState.Name(state.state).removeprefix("REPUT_STATE_")
        raise CommandFailed("NOT_REBUILT", f"the Indexer is {name}: {state.error}", code=ExitCode.DAMAGED)
    fields = {"rebuilt_physical_offset": state.rebuilt_physical_offset, "record_count": state.applied_record_count}
    print_fields(fields, as_json=as_json)


def _rebuild_offline(data_dir: Path, config: Path | None, *, as_json: bool) -> None:
    from cli.commands.indexes.offline_rebuild import (
        rebuild_offline,  # imports numpy, which other commands need not wait for
    )

    with progress("rebuild", noun="records") as meter:
        fields = rebuild_offline(
            data_dir, config, lambda done, total, count: meter.show(done, count=count, total=total)
        )
    if fields["log_end"] == "torn tail":
        warning_line(
            f"the log ends with a torn tail at {fields['end_physical_offset']} ({fields['log_end_reason']}); "
            "the CommitLog cuts it off at its next start"
        )
    else:
        del fields["log_end_reason"]
    print_fields({"data_dir": str(data_dir), **fields}, as_json=as_json)
