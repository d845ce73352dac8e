# SPDX-License-Identifier: Apache-2.0
"""`reput check`: one look for a monitoring system, with exit codes 0 to 3 of Nagios' plug-ins."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import write
from libs.runtime.errors import StartError

if TYPE_CHECKING:
    from cli.commands.check.rules import Thresholds

UNKNOWN = 3
READABLE = 0o644
"""The mode of the file: node_exporter runs as another user."""


class Form(StrEnum):
    """The forms of the answer."""

    NAGIOS = "nagios"
    JSON = "json"
    PROMETHEUS = "prometheus"


class CheckCommand(TyperCommand):
    """A command whose usage errors end with UNKNOWN: 2 would be CRITICAL for a monitoring system."""

    def make_context(self, *arguments: Any, **names: Any) -> Any:
        """Read the arguments."""
        try:
            return super().make_context(*arguments, **names)
        except Exception as error:
            if getattr(error, "exit_code", None) == ExitCode.USAGE:
                error.exit_code = UNKNOWN  # type: ignore[attr-defined]
            raise


def _pair(flag: str, text: str) -> Any:
    return typer.Option(flag, metavar="WARN,CRIT", help=text)


def check(
    context: typer.Context,
    form: Annotated[Form, typer.Option("--format", help="Form of the answer.")] = Form.NAGIOS,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the answer there, in one step, not to standard output.")
    ] = None,
    disk: Annotated[str, _pair("--disk", "Used percent of a disk.")] = "80,90",
    index: Annotated[str, _pair("--index", "Bytes that are not indexed yet.")] = "64MiB,1GiB",
    replica: Annotated[str, _pair("--replica", "Bytes that a replica is behind.")] = "64MiB,1GiB",
    janitor: Annotated[str, _pair("--janitor", "Age of the Janitor's last look.")] = "10m,1h",
    certificate: Annotated[str, _pair("--certificate", "Days that certificates last.")] = "21,7",
    groups: Annotated[str, _pair("--groups", "Groups that stand still.")] = "1,off",
    backups: Annotated[
        str, typer.Option(metavar="PLACE", help="The place of the backups, to see the age of the newest.")
    ] = "",
    backup: Annotated[str, _pair("--backup", "Age of the newest complete backup.")] = "3h,26h",
) -> None:
    """Check the store for a monitoring system: a line, the numbers, and a line for each finding with its cure.

    Exit codes are those of Nagios' plug-ins: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. They replace the codes of other
    commands. A service that gives no answer is CRITICAL, a check that can't be made is UNKNOWN. A limit that is `off`
    is never reached.

    Example: reput check --format prometheus --output /var/lib/node_exporter/reput.prom
    """
    from reput_client import ReputError

    from cli.commands.check import forms

    texts = {"disk": disk, "index": index, "replica": replica, "janitor": janitor}
    texts |= {"certificate": certificate, "groups": groups, "backup": backup}
    try:
        thresholds = thresholds_of(texts)
        text, code = _checked(context, Form.JSON if as_json else form, thresholds, backups)
        if output is not None:
            replace_file(output, text)
        else:
            write(text)
    except (ReputError, CommandFailed, StartError, ValueError, OSError, typer.BadParameter) as error:
        why = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
        write(forms.unknown_text(why))
        raise typer.Exit(UNKNOWN) from None
    raise typer.Exit(code)


check.command_class = CheckCommand  # type: ignore[attr-defined]


def thresholds_of(texts: dict[str, str]) -> Thresholds:
    """Return the limits of the options. Raises ValueError."""
    from cli.commands.check.rules import Thresholds
    from cli.commands.check.thresholds import SIZES, TIMES_S, limits_of

    return Thresholds(
        disk_percent=limits_of(texts["disk"], flag="--disk", greatest=100),
        index_bytes=limits_of(texts["index"], flag="--index", units=SIZES),
        replica_bytes=limits_of(texts["replica"], flag="--replica", units=SIZES),
        janitor_s=limits_of(texts["janitor"], flag="--janitor", units=TIMES_S),
        certificate_days=limits_of(texts["certificate"], flag="--certificate", is_least=True),
        blocked_groups=limits_of(texts["groups"], flag="--groups"),
        backup_s=limits_of(texts["backup"], flag="--backup", units=TIMES_S),
    )


def _checked(context: typer.Context, form: Form, thresholds: Thresholds, backups: str) -> tuple[str, int]:
    from cli.commands.check import forms
    from cli.commands.check.gather import facts_of
    from cli.commands.check.rules import findings_of, level_of

    facts = facts_of(context, backups)
    findings = findings_of(facts, thresholds)
    texts = {
        Form.NAGIOS: lambda: forms.nagios_text(findings),
        Form.JSON: lambda: forms.json_text(findings),
        Form.PROMETHEUS: lambda: forms.prometheus_text(findings, facts.time_s),
    }
    return texts[form](), level_of(findings).value


def replace_file(file: Path, text: str) -> None:
    """Write a file in one step: a reader sees the old text or the new text. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # no reader takes a hidden name
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            new.write(text)
            os.fchmod(new.fileno(), READABLE)
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
