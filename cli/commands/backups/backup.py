# SPDX-License-Identifier: Apache-2.0
"""`reput backup …`: create, list, verify and prune the backups of a place."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.typed.group import command_group
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, warning_line
from cli.output.moments import time_text
from cli.output.progress import progress
from cli.output.tables import print_fields, print_rows
from libs.figures import counted, size_text
from libs.formats.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.backup.manifest import Manifest
    from cli.backup.repository import Repository

backup = command_group("Backups of a running store: create, list, verify, prune.")

COLUMNS = (
    "backup_id", "created_time", "end_physical_offset", "log_bytes", "new_bytes", "pieces", "history_id",
)  # fmt: skip
RATE_MIB_S = 16.0
"""Most MiB per second that a backup reads from the log, unless the option says otherwise."""
NICENESS = 10
"""A backup leaves the processor to the services when both want it."""
CLOCK_NOTE_MS = 60_000
"""A backup that is later than the clock by more than this comes with a warning."""
ToOption = Annotated[str, typer.Option("--to", metavar="PLACE", help="Directory, or s3://BUCKET/PREFIX.")]
FromOption = Annotated[str, typer.Option("--from", metavar="PLACE", help="Directory, or s3://BUCKET/PREFIX.")]


@contextmanager
def failing() -> Iterator[None]:
    """Turn the errors of backups into the command's."""
    from cli.backup.errors import BackupDamaged, BackupError, BackupNotFound

    try:
        yield
    except BackupNotFound as error:
        raise CommandFailed("BACKUP_NOT_FOUND", str(error), code=ExitCode.NOT_FOUND) from error
    except BackupDamaged as error:
        raise CommandFailed("BACKUP_DAMAGED", str(error), code=ExitCode.DAMAGED) from error
    except BackupError as error:
        raise CommandFailed("BACKUP_FAILED", str(error)) from error


def repository_of(place: str, *, may_create: bool = False) -> Repository:
    """Open the backups of a place."""
    from cli.backup.places import open_place
    from cli.backup.repository import Repository

    return Repository(open_place(place, may_create=may_create))


@backup.command("create")
def create(
    context: typer.Context,
    to: ToOption,
    rate_mib_s: Annotated[
        float, typer.Option("--rate-mib-s", min=0, help="Most MiB of the log per second; 0 for no limit.")
    ] = RATE_MIB_S,
    positions: Annotated[
        bool, typer.Option("--positions/--no-positions", help="Include the positions of groups, from the Indexer.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Back up a running store. Only what the place does not have is moved, and read back.

    A backup that was killed is no backup; the next one goes on where it was.

    Example: reput backup create --to /backups/shop
    """
    from cli.backup.create import Creation, Pace
    from cli.backup.source import RunningStore

    os.nice(NICENESS)
    services = ("commitlog", "indexer") if positions else ("commitlog",)
    with failing(), client_of(context, *services) as client, progress("backup") as meter:
        repository = repository_of(to, may_create=True)
        with repository.place.locked():
            creation = Creation(
                repository,
                RunningStore(client, has_positions=positions),
                Pace(rate_mib_s * MIB),
                lambda done, total: meter.show(done, total=total),
            )
            now_ms = round(time.time() * 1000)
            manifest = creation.run(now_ms)
    if manifest.created_ms > now_ms + CLOCK_NOTE_MS:
        warning_line(
            f"an earlier backup here is of {time_text(manifest.created_ms - 1000)}, which is later than this machine's "
            "clock: the new one counts as made after it; look at the clock"
        )
    print_fields(row_of(manifest), as_json=as_json)


@backup.command("list")
def list_backups(place: FromOption, as_json: JsonOption = False) -> None:
    """List the complete backups of a place, the oldest first.

    Example: reput backup list --from /backups/shop
    """
    with failing():
        rows = [row_of(manifest) for manifest in repository_of(place).load_all()]
    print_rows(rows, COLUMNS, as_json=as_json)


@backup.command("verify")
def verify(
    place: FromOption,
    backup_id: Annotated[str, typer.Option("--backup", help="Id of a backup, or latest.")] = "latest",
    every: Annotated[bool, typer.Option("--all", help="All backups of the place.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read all bytes of a backup, and compare them with the checksums of its manifest.

    Example: reput backup verify --from /backups/shop --all
    """
    rows = []
    with failing():
        repository = repository_of(place)
        manifests = repository.load_all() if every else [repository.load(backup_id)]
        with progress("verify", sum(manifest.size_bytes for manifest in manifests)) as meter:
            before = 0
            for manifest in manifests:
                base = before
                before += repository.verify(manifest, lambda done, base=base: meter.show(base + done))  # type: ignore[misc]
                rows.append({**row_of(manifest), "is_sound": True})
    print_rows(rows, (*COLUMNS[:4], "is_sound"), as_json=as_json)


@backup.command("prune")
def prune(
    place: FromOption,
    keep: Annotated[int | None, typer.Option(min=1, help="Keep the newest backups, so many.")] = None,
    keep_days: Annotated[float | None, typer.Option(min=0, help="Keep the backups of so many days.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete old backups, and the objects that no other backup has. The newest backup always stays.

    With both rules a backup stays that either of them keeps.

    Example: reput backup prune --from /backups/shop --keep 7 --keep-days 30
    """
    from cli.backup.plan import plan_prune

    with failing():
        repository = repository_of(place)
        with repository.place.locked():
            sizes = repository.objects()
            plan = plan_prune(
                repository.load_all(),
                repository.load_incomplete(),
                sizes,
                now_ms=round(time.time() * 1000),
                keep_count=keep,
                keep_days=keep_days,
            )
            freed_bytes = sum(sizes[digest] for digest in plan.objects)
            if not dry_run:
                with progress("prune", len(plan.objects), "objects") as meter:
                    repository.prune(plan, meter.show)
    if dry_run:
        warning_line(f"nothing was deleted: {counted(len(plan.objects), 'object')}, {size_text(freed_bytes)} would be")
    print_fields(
        {
            "deleted": list(plan.deleted),
            "kept": list(plan.kept),
            "deleted_object_count": len(plan.objects),
            "freed_bytes": freed_bytes,
            "dry_run": dry_run,
        },
        as_json=as_json,
    )


def row_of(manifest: Manifest) -> dict[str, object]:
    """Return the fields of a backup that commands print."""
    return {
        "backup_id": manifest.backup_id,
        "created_time": time_text(manifest.created_ms),
        "start_physical_offset": manifest.min_physical_offset,
        "end_physical_offset": manifest.end_physical_offset,
        "log_bytes": manifest.end_physical_offset - manifest.min_physical_offset,
        "new_bytes": manifest.new_bytes,
        "pieces": len(manifest.pieces),
        "history_id": manifest.history_id,
    }
