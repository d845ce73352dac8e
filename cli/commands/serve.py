# SPDX-License-Identifier: Apache-2.0
"""`reput serve SERVICE`: a service in this process.

The flags of `serve` are made from the service's settings; `reput serve commitlog --help` lists them.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any

import typer

from cli.commands.typed.group import command_group

serve = command_group(
    "Run a service in this process until SIGTERM or Ctrl-C. All its settings are flags: "
    "`reput serve commitlog --help` lists them.\n\nExample: reput serve commitlog --data-dir reput-data"
)


PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""The service's own parser reads the flags, also --help."""


@serve.command("console", help="Run the console.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("gateway", help="Run the gateway.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("delivery", help="Run Delivery.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("janitor", help="Run the Janitor.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("indexer", help="Run the Indexer.", context_settings=PASS_THROUGH, add_help_option=False)
@serve.command("commitlog", help="Run the CommitLog.", context_settings=PASS_THROUGH, add_help_option=False)
def serve_one(context: typer.Context) -> None:
    """Run the service that the command is named after."""
    raise typer.Exit(run_service(str(context.command.name), context.args))


def console(context: typer.Context) -> None:
    """Run the console: pages about a store for browsers, at http://127.0.0.1:7300.

    All its settings are flags: `reput console --help` lists them. It needs the extra `console` of the package.

    Example: reput console --indexer-target 127.0.0.1:7102
    """
    raise typer.Exit(run_service("console", context.args))


console.context_settings = PASS_THROUGH  # type: ignore[attr-defined]


def run_service(service: str, arguments: list[str]) -> int:
    """Run a service in this process and return its exit code."""
    from libs.runtime.watch.faults import ending_in_order

    gc.disable()  # modules leave no garbage behind; `process.main` enables the collector
    with ending_in_order():
        from libs.runtime import process

        bootstrap: Any = importlib.import_module(f"services.{service}.bootstrap")
        return process.main(arguments, section=service, settings_class=bootstrap.Settings, build=bootstrap.Service)
