# SPDX-License-Identifier: Apache-2.0
"""`reput verify [DATA_DIR]`: the offline check of a whole store (cli/verify does the work)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import print_json, warning_line, write
from cli.output.progress import progress
from cli.verify.codes import CODES, Area
from libs.figures import counted, size_text
from libs.formats.errors import FormatError
from libs.formats.records.delay_level import DELAY_LEVELS_TEXT, parse_levels

if TYPE_CHECKING:
    from cli.verify.findings import Finding, Report
    from cli.verify.store import Summary

DelayLevelsOption = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        envvar=["REPUT_INDEXER_MESSAGE_DELAY_LEVEL", "REPUT_COMMITLOG_MESSAGE_DELAY_LEVEL"],
        help="The services' message_delay_level, which is in no file of the store.",
    ),
]


def verify(
    data_dir: Annotated[
        Path,
        typer.Argument(exists=True, file_okay=False, help="Directory of the store.", envvar="REPUT_DATA_DIR"),
    ] = Path("reput-data"),
    index_dir: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="The Indexer's directory. [default: the same]"),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Directory of another store whose log should be the same, byte by byte: a copy, or a replica.",
        ),
    ] = None,
    only: Annotated[list[Area] | None, typer.Option(help="Only this part; may be repeated. [default: all]")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most faults, and most notes, to show; all are counted.")] = 100,
    index_slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="REPUT_INDEXER_INDEX_SLOT_COUNT",
            help="Slots of an index file. [default: a quarter of its entries]",
        ),
    ] = None,
    delay_levels: DelayLevelsOption = DELAY_LEVELS_TEXT,
    allow_running: Annotated[
        bool, typer.Option("--allow-running", help="Check although a service uses the directory.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every record, queue unit and index entry of a store, offline. Nothing is changed.

    Exit code 6 if there is a fault; notes are no faults. docs/cli.md explains the codes.

    Example: reput verify reput-data --only log
    """
    from cli.verify.findings import Report  # imports numpy, which other commands need not wait for
    from cli.verify.groups import Groups
    from cli.verify.store import verify_store

    _check_use([data_dir] if index_dir is None else [data_dir, index_dir], allow_running=allow_running)
    if against is not None:
        _check_use([against], allow_running=allow_running)
    shown: list[Finding] = []
    groups = Groups(_print_finding)
    report = Report(shown.append if as_json else groups.add, limit, frozenset(only or Area))
    started_s = time.monotonic()
    with progress("verify") as meter:
        summary = verify_store(
            data_dir,
            report,
            index_dir=index_dir,
            index_slot_count=index_slots,
            delay_levels_ms=_parsed(delay_levels),
            against=against,
            progress=meter.show,
        )
    duration_s = time.monotonic() - started_s
    if as_json:
        _print_document(data_dir, report, summary, shown, duration_s)
    else:
        for line in groups.rest():
            write(f"{line}\n")
        _print_summary(data_dir, report, summary, duration_s)
    if report.fault_count:
        raise CommandFailed("DAMAGED", f"{counted(report.fault_count, 'fault')} in {data_dir}", code=ExitCode.DAMAGED)


def _parsed(delay_levels: str) -> tuple[int, ...]:
    try:
        return parse_levels(delay_levels)
    except FormatError as error:
        raise typer.BadParameter(error.reason, param_hint="--delay-levels") from error


def _check_use(directories: list[Path], *, allow_running: bool) -> None:
    """Raise CommandFailed if none of the directories is a store, or a process uses any of them without permission."""
    from cli.verify.state import users_of
    from cli.verify.store import is_store

    if not any(map(is_store, directories)):
        raise CommandFailed("NO_STORE", f"{directories[0]} holds no log, queues or index", code=ExitCode.NOT_FOUND)
    for directory in directories:
        for lock in users_of(directory):
            if not allow_running:
                text = f"a process holds {directory / lock}: stop it, or give --allow-running"
                raise CommandFailed("IN_USE", text, code=ExitCode.REFUSED)
            warning_line(f"a process holds {directory / lock}; what it writes meanwhile may look like a fault")


def _print_finding(finding: Finding) -> None:
    places = [f"at byte {finding.position}"] if finding.position is not None else []
    places += [f"physical offset {finding.physical_offset}"] if finding.physical_offset is not None else []
    times = f" (x {finding.count})" if finding.count > 1 else ""
    where = f"{finding.file} {', '.join(places)}".rstrip()
    is_fault = finding.severity == "fault"
    text = f"{finding.severity.upper()} {finding.code}{times} in {where}: {finding.message}"
    typer.secho(text, fg="red" if is_fault else None)


def _print_summary(data_dir: Path, report: Report, summary: Summary, duration_s: float) -> None:
    from cli.verify.groups import likely_cause

    for code in CODES:
        if (counts := report.counts.get(code)) is not None:
            parts = [counted(counts.faults, "fault")] if counts.faults else []
            parts += [counted(counts.notes, "note")] if counts.notes else []
            write(f"{code}: {', '.join(parts)}; {CODES[code].meaning}; to do: {CODES[code].action}\n")
    if (cause := likely_cause(report.counts)) is not None:
        write(f"{cause}\n")
    totals = (
        counted(summary.record_count, "record"),
        counted(summary.unit_count, "unit"),
        f"{summary.index_entry_count:,} index entries",
        size_text(summary.size_bytes),
        *([f"{size_text(summary.compared_bytes)} compared"] if summary.compared_bytes else []),
        f"{duration_s:.1f} s",
        counted(report.fault_count, "fault"),
        counted(report.note_count, "note"),
    )
    write(f"{data_dir}: {', '.join(totals)}\n")


def _print_document(data_dir: Path, report: Report, summary: Summary, shown: list[Finding], duration_s: float) -> None:
    print_json(
        {
            "data_dir": str(data_dir),
            "is_sound": report.fault_count == 0,
            "fault_count": report.fault_count,
            "note_count": report.note_count,
            "duration_ms": round(duration_s * 1000),
            **structs.asdict(summary),
            "codes": {
                code: {**structs.asdict(report.counts[code]), "meaning": CODES[code].meaning}
                for code in CODES
                if code in report.counts
            },
            "findings": [structs.asdict(finding) for finding in shown],
        }
    )
