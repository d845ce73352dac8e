# SPDX-License-Identifier: Apache-2.0
"""`reput status`, `segments`, `health` and `janitor …`: the states of the services, for operators."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Annotated, Any

import grpc
import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.janitor.v1.retention_service_pb2 import ACTION_DELETE, Run
from reput_client import Client, DeadlineExceededError, ReputError, UnavailableError
from rich.progress import Progress

from cli.connection import client_of, options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output import JsonOption, errors, plain, print_fields, print_json, print_rows

janitor = typer.Typer(no_args_is_help=True, help="Retention: what expires, when, and why not.")

DIRECTORY_COLUMNS = (
    "path", "segment_count", "is_read_only", "is_full", "disk_used_percent", "disk_free_bytes",
)  # fmt: skip
STEPPED_OVER_COLUMNS = (
    "topic", "queue_id", "reason", "record_count", "first_physical_offset", "last_physical_offset", "last_queue_offset",
)  # fmt: skip
DISK_COLUMNS = ("service", "path", "used_percent", "free_bytes", "total_bytes", "own_bytes")
TABLES = {
    "log_directories": DIRECTORY_COLUMNS,
    "stepped_over": STEPPED_OVER_COLUMNS,
    "disks": DISK_COLUMNS,
    "replicas": (
        "replica_id",
        "is_in_sync",
        "received_physical_offset",
        "flushed_physical_offset",
        "had_all_time",
        "connected_time",
    ),
}
"""Lists in the states, below the other fields."""
CONSUMER_COLUMNS = ("group", "topic", "queue_id", "queue_offset", "min_queue_offset")
SERVICES = ("commitlog", "indexer", "janitor")
POLL_INTERVAL_S = 0.2
RECOVERING_FIELDS = ("state", "recovery_progress", "role", "replica_id", "segment_size_bytes", "start_time", "version")
ONE_CHECK_TIMEOUT_S = 3.0


def status(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the states of all three services. Exit code 4 if one can't be reached."""
    found: dict[str, dict[str, object]] = {}
    with client_of(context, is_patient=False) as client:
        admin = client.admin
        calls = {"commitlog": admin.commitlog_status, "indexer": admin.indexer_status, "janitor": admin.janitor_status}
        for service, call in calls.items():
            try:
                found[service] = _known(plain(call()))
            except (UnavailableError, DeadlineExceededError) as error:
                found[service] = {"unavailable": error.text}
    if as_json:
        print_json(found)
    else:
        for service, fields in found.items():
            typer.secho(service, bold=True)
            tables = {name: fields.pop(name, None) for name in TABLES}
            print_fields({f"  {name}": value for name, value in fields.items()}, as_json=False)
            for name, rows in tables.items():
                if isinstance(rows, list) and rows:
                    print_rows(rows, TABLES[name], as_json=False)
    away = [service for service, fields in found.items() if "unavailable" in fields]
    if away:
        raise CommandFailed("UNAVAILABLE", f"no answer from {', '.join(away)}", code=ExitCode.UNAVAILABLE)


def segments(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the segments of the log, oldest first."""
    columns = (
        "base_physical_offset", "size_bytes", "wrote_bytes", "first_store_time", "last_store_time",
        "is_active", "is_indexed", "reader_count",
    )  # fmt: skip
    with client_of(context) as client:
        print_rows(map(plain, client.admin.segments()), columns, as_json=as_json)


def health(
    context: typer.Context,
    target: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Only this server. [default: all]")] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Wait so long for SERVING.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Ask servers for their health (the standard gRPC health service). Exit code 4 unless all are SERVING."""
    options = options_of(context)
    credentials = options.credentials()
    targets = [target] if target else [each for service in SERVICES for each in options.targets(service)]
    end_s = time.monotonic() + wait
    answers = {}
    for server in targets:
        with options.channel(server, credentials) as channel:
            answers[server] = _wait_serving(channel, end_s)
    rows = ({"target": server, "health": answer} for server, answer in answers.items())
    print_rows(rows, ("target", "health"), as_json=as_json)
    bad = [server for server, answer in answers.items() if answer != "SERVING"]
    if bad:
        raise CommandFailed("NOT_SERVING", f"not serving: {', '.join(bad)}", code=ExitCode.UNAVAILABLE)


@janitor.command("status")
def janitor_status(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show what the Janitor does, when it will look next, and how full the disks are."""
    with client_of(context) as client:
        state = client.admin.janitor_status()
    fields = plain(state)
    if not as_json:
        print_rows(map(plain, state.disks), DISK_COLUMNS, as_json=False)
        del fields["disks"]
    print_fields(fields, as_json=as_json)


@janitor.command("policy")
def janitor_policy(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the retention policy in force."""
    with client_of(context) as client:
        print_fields(plain(client.admin.retention_policy()), as_json=as_json)


@janitor.command("run")
def janitor_run(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and explain, delete nothing.")] = False,
    trust_clock: Annotated[
        bool,
        typer.Option(
            "--trust-clock", help="Believe the Janitor's clock from now on, with --dry-run for once: you looked at it."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide now which segments expire, and delete them. Exit code 5 if an owner refused."""
    with client_of(context) as client:
        if dry_run:
            run = client.admin.run_retention(dry_run=True, trust_clock=trust_clock)
        else:
            run = _run_with_progress(client, trust_clock=trust_clock)
    fields = _run_fields(run)
    if as_json:
        print_json(fields)
    else:
        decisions = fields.pop("decisions")
        assert isinstance(decisions, list)
        columns = ("base_physical_offset", "action", "reason", "last_store_time", "explanation")
        print_rows(decisions, columns, as_json=False)
        if run.consumers:
            print_rows(map(plain, run.consumers), CONSUMER_COLUMNS, as_json=False)
        print_fields({name: value for name, value in fields.items() if name != "consumers"}, as_json=False)
    if run.error:
        raise CommandFailed("RUN_FAILED", run.error, code=ExitCode.REFUSED)


@janitor.command("history")
def janitor_history(context: typer.Context, as_json: JsonOption = False) -> None:
    """List past runs that deleted something or failed, newest first."""
    with client_of(context) as client:
        columns = ("time", "trigger", "deleted_segment_count", "freed_bytes", "error")
        print_rows(map(_run_fields, client.admin.retention_history()), columns, as_json=as_json)


def _run_with_progress(client: Client, *, trust_clock: bool) -> Run:
    """Run, and show on a terminal how many segments are deleted: many take a while, with a pause between two."""
    with (
        ThreadPoolExecutor(max_workers=1) as executor,
        Progress(console=errors, disable=not errors.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task("deleting segments", total=None)
        running = executor.submit(client.admin.run_retention, dry_run=False, trust_clock=trust_clock)
        while not running.done():
            wait([running], timeout=POLL_INTERVAL_S)
            with contextlib.suppress(ReputError):  # the run itself will tell
                state = client.admin.janitor_status()
                planned_count = state.run_planned_segment_count or None
                progress.update(task, total=planned_count, completed=state.run_deleted_segment_count)
        return running.result()


def _known(fields: dict[str, object]) -> dict[str, object]:
    """Return the fields of a state that say something: a CommitLog that recovers knows little of its log."""
    if fields.get("state") == "RECOVERING" and "recovery_progress" in fields:
        return {name: fields[name] for name in RECOVERING_FIELDS}
    return fields


def _wait_serving(channel: grpc.Channel, end_s: float) -> str:
    """Return a server's health once it is SERVING or the time is over, UNREACHABLE if there is no answer."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    while True:
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=ONE_CHECK_TIMEOUT_S)
            name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        except grpc.RpcError:
            name = "UNREACHABLE"
        if name == "SERVING" or time.monotonic() >= end_s:
            return name
        time.sleep(POLL_INTERVAL_S)


def _run_fields(run: Run) -> dict[str, object]:
    fields = plain(run)
    fields["decisions"] = [
        {**plain(decision), "action": "delete" if decision.action == ACTION_DELETE else "keep"}
        for decision in run.decisions
    ]
    return fields
