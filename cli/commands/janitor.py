# SPDX-License-Identifier: Apache-2.0
"""`reput janitor …`: retention, its state and manual runs."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.typed.confirm import YesOption, confirm
from cli.commands.typed.group import command_group
from cli.connection.addresses import place_of
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json
from cli.output.progress import progress
from cli.output.tables import print_fields, print_rows
from libs.figures import many, size_text

if TYPE_CHECKING:
    from reput.janitor.v1.retention_service_pb2 import Run
    from reput_client import Client

janitor = command_group("Retention: the segments that expire, the time of expiry, and the reasons to keep.")

DISK_COLUMNS = ("service", "path", "used_percent", "free_bytes", "total_bytes", "own_bytes")
CONSUMER_COLUMNS = ("group", "topic", "queue_id", "queue_offset", "min_queue_offset")
DECISION_COLUMNS = ("base_physical_offset", "action", "reason", "last_store_time", "explanation")
HISTORY_COLUMNS = ("time", "trigger", "deleted_segment_count", "freed_bytes", "error")
TOPIC_COLUMNS = (
    "topic", "retention_hours", "retention_bytes", "expired_message_count", "kept_message_count", "kept_bytes",
    "first_store_time", "is_longer", "error",
)  # fmt: skip
POLL_INTERVAL_S = 0.2


@janitor.command("status")
def janitor_status(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the state of the Janitor, the time of its next check, and how full the disks are.

    Example: reput janitor status
    """
    with client_of(context, "janitor") as client:
        state = client.admin.janitor_status()
        from cli.output.protos import plain

    fields = plain(state)
    if not as_json:
        print_rows(map(plain, state.disks), DISK_COLUMNS, as_json=False)
        if state.topics:
            print_rows(map(plain, state.topics), TOPIC_COLUMNS, as_json=False, prose="error")
        del fields["disks"], fields["topics"]
    print_fields(fields, as_json=as_json)


@janitor.command("policy")
def janitor_policy(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the retention policy in force.

    Example: reput janitor policy
    """
    with client_of(context, "janitor") as client:
        from cli.output.protos import plain

        print_fields(plain(client.admin.retention_policy()), as_json=as_json)


@janitor.command("run")
def janitor_run(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and explain, delete nothing.")] = False,
    trust_clock: Annotated[
        bool,
        typer.Option(
            "--trust-clock", help="Believe the Janitor's clock from now on, with --dry-run once: you checked it."
        ),
    ] = False,
    retention_hours: Annotated[
        int | None,
        typer.Option(min=0, max=876_000, help="With --dry-run: decide as if this were the retention."),
    ] = None,
    retention_bytes: Annotated[int | None, typer.Option(min=0, help="With --dry-run: the same for the bytes.")] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --dry-run: these limits are the topic's own.")
    ] = None,
    yes: Annotated[bool, YesOption] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide now which segments expire, and delete them. Exit code 5 if the CommitLog or the Indexer refused.

    It asks first, and says how much it would delete. --dry-run deletes nothing and does not ask.

    Example: reput janitor run --dry-run --retention-hours 24
    """
    is_trial = retention_hours is not None or retention_bytes is not None or topic is not None
    if is_trial and not dry_run:
        text = "--retention-hours, --retention-bytes and --topic are for --dry-run: they change no setting"
        raise CommandFailed("BAD_OPTIONS", text, code=ExitCode.USAGE)
    with client_of(context, "janitor") as client:
        if dry_run:
            run = client.admin.run_retention(
                dry_run=True,
                trust_clock=trust_clock,
                retention_hours=retention_hours,
                retention_bytes=retention_bytes,
                topic=topic or "",
            )
        else:
            if not yes:
                prospect = _prospect(client.admin.run_retention(dry_run=True, trust_clock=trust_clock))
                confirm(prospect, place=place_of(context.find_root().obj, "janitor"), yes=False)
            run = _run_with_progress(client, trust_clock=trust_clock)
        _print_run(run, as_json=as_json)
    if run.error:
        raise CommandFailed("RUN_FAILED", run.error, code=ExitCode.REFUSED)


def _prospect(run: Run) -> str:
    """Return the effect of a run, from a dry run."""
    from reput.janitor.v1.retention_service_pb2 import ACTION_DELETE

    sizes = [decision.size_bytes for decision in run.decisions if decision.action == ACTION_DELETE]
    kept = many(len(run.decisions) - len(sizes), "segment")
    lost = sum(decision.is_lost for decision in run.decisions if decision.action == ACTION_DELETE)
    note = f", {lost} of them not indexed or not replicated" if lost else ""
    return f"delete {many(len(sizes), 'segment')} ({size_text(sum(sizes))}{note}) and keep {kept}"


def _print_run(run: Run, *, as_json: bool) -> None:
    from cli.output.protos import plain

    fields = _run_fields(run)
    if as_json:
        print_json(fields)
        return
    decisions = fields.pop("decisions")
    assert isinstance(decisions, list)
    print_rows(decisions, DECISION_COLUMNS, as_json=False, prose="explanation")
    if run.consumers:
        print_rows(map(plain, run.consumers), CONSUMER_COLUMNS, as_json=False)
    if run.topics:
        print_rows(map(plain, run.topics), TOPIC_COLUMNS, as_json=False, prose="error")
    print_fields({name: value for name, value in fields.items() if name not in ("consumers", "topics")}, as_json=False)


@janitor.command("history")
def janitor_history(context: typer.Context, as_json: JsonOption = False) -> None:
    """List past runs that deleted segments or failed, newest first.

    Example: reput janitor history
    """
    with client_of(context, "janitor") as client:
        runs = map(_run_fields, client.admin.retention_history())
        print_rows(runs, HISTORY_COLUMNS, as_json=as_json, prose="error")


def _run_with_progress(client: Client, *, trust_clock: bool) -> Run:
    """Run, and show the number of deleted segments on a terminal: many take a while, with pauses between them."""
    from reput_client import ReputError

    with ThreadPoolExecutor(max_workers=1) as executor, progress("deleting", noun="segments") as meter:
        running = executor.submit(client.admin.run_retention, dry_run=False, trust_clock=trust_clock)
        while not running.done():
            wait([running], timeout=POLL_INTERVAL_S)
            with contextlib.suppress(ReputError):  # the run itself reports the error
                state = client.admin.janitor_status()
                meter.show(state.run_deleted_segment_count, total=state.run_planned_segment_count or None)
        return running.result()


def _run_fields(run: Run) -> dict[str, object]:
    from reput.janitor.v1.retention_service_pb2 import ACTION_DELETE

    from cli.output.protos import plain

    fields = plain(run)
    sizes = [decision.size_bytes for decision in run.decisions if decision.action == ACTION_DELETE]
    if run.is_dry_run:
        fields |= {"would_delete_segment_count": len(sizes), "would_delete_bytes": sum(sizes)}
    fields["decisions"] = [
        {**plain(decision), "action": "delete" if decision.action == ACTION_DELETE else "keep"}
        for decision in run.decisions
    ]
    return fields
