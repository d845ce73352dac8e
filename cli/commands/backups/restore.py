# SPDX-License-Identifier: Apache-2.0
"""`reput restore`: a backup becomes a store in an empty directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.backups.backup import FromOption, failing, repository_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, warning_line
from cli.output.moments import TIME_FORMS, parse_time, time_text
from cli.output.progress import progress
from cli.output.tables import print_fields
from libs.figures import counted


def restore(
    place: FromOption,
    data_dir: Annotated[Path, typer.Option(file_okay=False, help="Directory of the new store: missing, or empty.")],
    backup_id: Annotated[str, typer.Option("--backup", help="Id of the backup, or latest.")] = "latest",
    offset: Annotated[int | None, typer.Option(min=0, help="Only records that end up to this physical offset.")] = None,
    until: Annotated[str | None, typer.Option(help=f"Only records stored up to this time: {TIME_FORMS}.")] = None,
    index_dir: Annotated[
        Path | None, typer.Option(file_okay=False, help="The Indexer's directory. [default: the same]")
    ] = None,
    as_follower: Annotated[
        bool, typer.Option("--as-follower", help="For a follower of the log that was backed up, which lives.")
    ] = False,
    check: Annotated[bool, typer.Option("--verify/--no-verify", help="Check the restored store afterwards.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup into an empty directory. Start the services there afterwards.

    The store has a history of its own: replicas and Indexers of the former store do not follow it. The Indexer builds
    its indexes. With a bound, groups are where they were then. With --as-follower the store keeps the history: start it
    as a follower, which gets from the leader only what came later.

    Example: reput restore --from /backups/shop --until -2h --data-dir /var/lib/reput
    """
    from cli.backup.cut import Cut
    from cli.backup.restore import Restore

    until_ms = None if until is None else parse_time(until)
    with failing(), progress("restore") as meter:
        repository = repository_of(place)
        manifest = repository.load(backup_id)
        cut = Cut(offset, until_ms)
        action = Restore(
            repository,
            manifest,
            cut,
            data_dir,
            index_dir or data_dir,
            lambda done, total: meter.show(done, total=total),
            is_follower=as_follower,
        )
        restored = action.run()
    if until_ms is not None and until_ms > manifest.created_ms:
        warning_line(
            f"{manifest.backup_id} was made before {time_text(until_ms)}: it has no later message than its own"
        )
    if manifest.pieces and not cut.record_count:
        warning_line("no record of the backup is within the bound: the restored store has no message")
    if check:
        _verify(data_dir)
    fields = restored._asdict()
    last_ms = fields.pop("last_store_time_ms")
    print_fields({**fields, "last_store_time": time_text(last_ms) if last_ms else None, "data_dir": str(data_dir)},
                 as_json=as_json)  # fmt: skip


def _verify(data_dir: Path) -> None:
    """Check log and small files of the new store. There are no indexes yet."""
    from cli.verify.codes import Area
    from cli.verify.findings import Finding, Report
    from cli.verify.store import verify_store

    found: list[Finding] = []
    report = Report(found.append, 1, frozenset({Area.LOG, Area.FILES}))
    with progress("verify") as meter:
        verify_store(data_dir, report, progress=meter.show)
    if report.fault_count:
        faults = counted(report.fault_count, "fault")
        text = f"{faults} in {data_dir}: {found[0].message}; `reput verify {data_dir}` has all"
        raise CommandFailed("BACKUP_DAMAGED", text, code=ExitCode.DAMAGED)
