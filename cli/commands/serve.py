# SPDX-License-Identifier: Apache-2.0
"""`reput serve SERVICE` and `reput config show SERVICE`: a service in this process, and its effective settings.

The flags of `serve` are made from the service's settings; `reput serve commitlog --help` lists them.
"""

from __future__ import annotations

import importlib
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.output.lines import JsonOption
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from libs.runtime.config import Setting

serve = command_group(
    "Run a service in this process until SIGTERM or Ctrl-C. All its settings are flags: "
    "`reput serve commitlog --help` lists them.\n\nExample: reput serve commitlog --data-dir reput-data"
)
config = command_group("Settings of the services.")


class ServiceName(StrEnum):
    """The services."""

    COMMITLOG = "commitlog"
    INDEXER = "indexer"
    JANITOR = "janitor"
    DELIVERY = "delivery"
    GATEWAY = "gateway"


PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""The service's own parser reads the flags, also --help."""


@serve.command("gateway", help="Run the gateway.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("delivery", help="Run Delivery.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("janitor", help="Run the Janitor.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("indexer", help="Run the Indexer.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("commitlog", help="Run the CommitLog.", context_settings=PASS_THROUGH, add_help_option=False)
def serve_one(context: typer.Context) -> None:
    """Run the service that the command is named after."""
    raise typer.Exit(run_service(str(context.command.name), context.args))


def run_service(service: str, arguments: list[str]) -> int:
    """Run a service in this process and return its exit code."""
    from libs.runtime.watch.faults import ending_in_order

    with ending_in_order():
        from libs.runtime import process

        bootstrap: Any = importlib.import_module(f"services.{service}.bootstrap")
        return process.main(arguments, section=service, settings_class=bootstrap.Settings, build=bootstrap.Service)


@config.command("show")
def show(
    service: Annotated[ServiceName, typer.Argument(help="The service.")],
    file: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="TOML file.")] = None,
    basic: Annotated[bool, typer.Option("--basic", help="Only the settings of a normal installation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the settings in force and where each comes from: default, file, or environment. Secrets are masked.

    Example: reput config show janitor
    """
    from libs.runtime.config import load

    bootstrap: Any = importlib.import_module(f"services.{service.value}.bootstrap")
    loaded = load(bootstrap.Settings, section=service.value, file=file, environment=os.environ, flags={})
    rows = (
        {
            "setting": setting.field.name,
            "value": _shown(setting),
            "source": setting.source,
            "importance": setting.field.importance.value,
            "description": setting.field.description,
        }
        for setting in loaded.settings
        if setting.field.is_basic or not basic
    )
    print_rows(rows, ("setting", "value", "source"), as_json=as_json)


def _shown(setting: Setting) -> object:
    """Return a value as text, but a boolean as it is. Secrets are masked."""
    if setting.value is None:
        return ""
    return setting.value if isinstance(setting.value, bool) else setting.shown_value
