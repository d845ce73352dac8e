# SPDX-License-Identifier: Apache-2.0
"""`reput mcp`: a server of the Model Context Protocol on standard input and output, for programs with a language model.

Its answers are those of the console, with the console's settings for bodies and masked fields.
"""

from __future__ import annotations

import os
import signal
from typing import Annotated

import typer

from cli.connection.addresses import beside_of, targets_of
from cli.connection.client import options_of
from cli.exit_codes import CommandFailed, ExitCode

ANSWER_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 10.0
EXTRA = "it needs packages that are not installed: pip install 'reput-server[mcp]'"
RIGHT = "the caller lacks the right: give reput the option --token-file with the token of an operator"


def mcp(
    context: typer.Context,
    hide_bodies: Annotated[
        bool,
        typer.Option("--hide-bodies", envvar="REPUT_CONSOLE_HIDE_BODIES", help="Show no bodies; sizes are shown."),
    ] = False,
    masked_fields: Annotated[
        str,
        typer.Option(
            envvar="REPUT_CONSOLE_MASKED_FIELDS",
            metavar="NAMES",
            help="Show no values of these fields of JSON bodies and properties (a,b,…), and no other bodies.",
        ),
    ] = "",
    no_delivery: Annotated[
        bool, typer.Option("--no-delivery", help="The store has no Delivery: it is not asked, and not missing.")
    ] = False,
) -> None:
    """Let programs with a language model look at the store: a read-only MCP server on standard input.

    It serves the Model Context Protocol on standard input and output until the input ends; the program that uses it
    starts it. Its tools find messages, follow them, and show groups, topics, retention and services. The options before
    the command say where the store is. It needs the extra `mcp` of the package.

    Example: reput --store 127.0.0.1:8081 mcp --hide-bodies
    """
    given = context.find_root().obj
    targets = {service: ",".join(found) for service, found in targets_of(given).items()}
    targets |= {"gateway": ",".join(beside_of(given)["gateway"][0])} | ({"delivery": ""} if no_delivery else {})
    options = options_of(context)
    try:
        from services.console.mcp.server import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise CommandFailed("CONFIG", EXTRA, code=ExitCode.USAGE) from None
    from dataclasses import replace

    from services.console.ask.store import Store
    from services.console.pages.mask import mask_of

    if given["timeout_s"] is None:
        options = replace(options, timeout_s=CALL_TIMEOUT_S)
    store = Store(options, targets, mask_of(masked_fields, hides_bodies=hide_bodies))
    store.answer_timeout_s, store.right_advice = ANSWER_TIMEOUT_S, RIGHT
    for stop in (signal.SIGINT, signal.SIGTERM):  # a thread waits for the input: there is no other end
        signal.signal(stop, lambda number, _: os._exit(128 + number))
    serve(store)
