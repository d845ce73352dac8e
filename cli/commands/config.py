# SPDX-License-Identifier: Apache-2.0
"""`reput config`: the effective settings of a service, the settings of a running service, and a check of a file."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, note_line, warning_line
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from libs.runtime.config import Setting

config = command_group("Settings of the services.")


class ServiceName(StrEnum):
    """The services."""

    COMMITLOG = "commitlog"
    INDEXER = "indexer"
    JANITOR = "janitor"
    DELIVERY = "delivery"
    GATEWAY = "gateway"
    CONSOLE = "console"


METRICS_PORTS = {
    "commitlog": 7201,
    "indexer": 7202,
    "janitor": 7203,
    "delivery": 7204,
    "gateway": 7205,
    "console": 7206,
}
"""The usual ports of the metrics, where a service also tells its settings."""
TOKEN_FILES = ("token_file", "service_token_file", "operator_token_file", "metrics_token_file")
"""Settings whose file has a token in each line."""


@config.command("show")
def show(
    context: typer.Context,
    service: Annotated[ServiceName, typer.Argument(help="The service.")],
    file: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML file.")] = None,
    basic: Annotated[bool, typer.Option("--basic", help="Only the settings of a normal installation.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Ask the running service at its metrics port.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="URL", help="With --live: where it serves metrics. [default: its usual port here]"),
    ] = None,
    metrics_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --live: file with a token of its metrics_token_file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the settings in force and where each comes from: default, file, or environment. Secrets are masked.

    Without --live they are the settings with which a service would start here. With --live they are the settings that
    the running service uses; its `metrics_port` tells them to callers on its machine, or with a token. Of https URLs
    --ca-file checks the certificate.

    Example: reput config show janitor --live
    """
    if live and file is not None:
        raise typer.BadParameter("a running service has read its own file", param_hint="--config")
    if not live and (metrics is not None or metrics_token_file is not None):
        raise typer.BadParameter("it needs --live", param_hint="--metrics, --metrics-token-file")
    rows = _live_rows(context, service.value, metrics, metrics_token_file) if live else _rows(service.value, file)
    columns = ("setting", "value", "source")
    print_rows(_chosen(service.value, rows, is_basic=basic), columns, as_json=as_json)


@config.command("validate")
def validate(
    file: Annotated[Path, typer.Argument(help="TOML file with a table for each service.")],
    as_json: JsonOption = False,
) -> None:
    """Check the settings of all services in a file, together with the variables REPUT_<SERVICE>_….

    Each service has a line. Exit code 2 if a service would refuse its settings, its rights file or a file with tokens.
    A file that is not on this machine is a warning.

    Example: reput config validate reput.toml
    """
    from libs.runtime.errors import ConfigError

    rows: list[dict[str, object]] = []
    for service in ServiceName:
        try:
            settings = _settings(service.value, file)
            _check_files(service.value, settings)
            given = sum(setting.source != "default" for setting in settings)
            rows.append({"service": service.value, "is_valid": True, "text": f"{given} settings given"})
        except ConfigError as error:
            rows.append({"service": service.value, "is_valid": False, "text": str(error)})
    print_rows(rows, ("service", "is_valid", "text"), as_json=as_json)
    if bad := [str(row["service"]) for row in rows if not row["is_valid"]]:
        raise CommandFailed("CONFIG", f"{file}: wrong settings of {', '.join(bad)}", code=ExitCode.USAGE)


def _settings(service: str, file: Path | None) -> Sequence[Setting]:
    """Return the settings with which a service would start here. Raises ConfigError."""
    from libs.runtime.config import load

    bootstrap: Any = importlib.import_module(f"services.{service}.bootstrap")
    settings: Sequence[Setting] = load(
        bootstrap.Settings, section=service, file=file, environment=os.environ, flags={}
    ).settings
    return settings


def _rows(service: str, file: Path | None) -> list[dict[str, object]]:
    """Return the settings with which a service would start here, as rows. Raises ConfigError."""
    return [
        {"setting": setting.field.name, "value": _shown(setting), "source": setting.source}
        for setting in _settings(service, file)
    ]


def _check_files(service: str, settings: Sequence[Setting]) -> None:
    """Warn about each file that the settings name and that can't be read here. Raises ConfigError for a wrong one."""
    from libs.runtime.trust.rights.rights_file import read_rights
    from libs.runtime.trust.tokens import read_tokens

    for setting in settings:
        name, value = setting.field.name, setting.value
        if not isinstance(value, Path) or not name.endswith("_file") or name == "audit_file":
            continue
        try:
            with value.open("rb"):
                pass
        except OSError as error:
            warning_line(f"{service}: {name}: {value}: {error.strerror}; the service needs it at its start")
            continue
        if name == "rights_file":
            read_rights(value)
        elif name in TOKEN_FILES:
            read_tokens(name, value)


def _live_rows(
    context: typer.Context, service: str, url: str | None, token_file: Path | None
) -> list[dict[str, object]]:
    """Return the settings that a running service uses. Raises CommandFailed."""
    from cli.connection.pages import Door, page_of

    door = Door(url or f"http://127.0.0.1:{METRICS_PORTS[service]}", context.find_root().obj["ca_file"], token_file)
    try:
        found = json.loads(page_of(door, "/settings"))
    except ValueError as error:
        raise CommandFailed("UNAVAILABLE", f"{door.url}: no Reput answers there", code=ExitCode.UNAVAILABLE) from error
    if waiting := found["waiting"]:
        note_line(f"changed in its sources, and taken at its next start: {', '.join(waiting)}")
    rows: list[dict[str, object]] = found["settings"]
    return rows


def _chosen(service: str, rows: list[dict[str, object]], *, is_basic: bool) -> Iterator[dict[str, object]]:
    """Yield the chosen settings, with what this version knows about them."""
    from libs.runtime.config import fields_of

    bootstrap: Any = importlib.import_module(f"services.{service}.bootstrap")
    known = {field.name: field for field in fields_of(bootstrap.Settings)}
    for row in rows:
        field = known.get(str(row["setting"]))
        if field is not None:
            row |= {"importance": field.importance.value, "description": field.description}
        if not is_basic or (field is not None and field.is_basic):
            yield row


def _shown(setting: Setting) -> object:
    """Return a value as text, but a boolean as it is. Secrets are masked."""
    if setting.value is None:
        return ""
    return setting.value if isinstance(setting.value, bool) else setting.shown_value
