# SPDX-License-Identifier: Apache-2.0
"""`reput put`: appends messages from arguments, from lines of standard input, or from a file of JSON lines.

The options are here; cli/commands/messages/sending.py does the work, and is imported when there are messages.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.connection.client import client_of, options_of
from cli.exit_codes import ExitCode
from cli.input_lines import is_terminal, standard_input
from cli.output.lines import JsonOption, note_line
from cli.output.moments import parse_duration, parse_time


class DurabilityName(StrEnum):
    """Durability levels by the names that users type."""

    DEFAULT = "default"
    MEMORY = "memory"
    LOCAL_DISK = "local-disk"
    REPLICATED = "replicated"


def put(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(help="Bodies. [default: a body per line of standard input]")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="JSON lines, a message each; '-' is standard input.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Tag.")] = None,
    key: Annotated[list[str] | None, typer.Option("--key", help="A key; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Queue. [default: the store chooses]")] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Messages with equal keys share a queue.")] = None,
    delay_level: Annotated[
        int,
        typer.Option(min=0, help="Deliver after the store's delay of this level: 1 is 1 s, 18 is 2 h. 0: none."),
    ] = 0,
    deliver_at: Annotated[
        str | None,
        typer.Option("--deliver-at", metavar="TIME", help="Deliver at +2h, 'tomorrow 09:00', …; at once if past."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="DURATION", help="Deliver so much later: 90s, 1h30m, '2 days'.")
    ] = None,
    durability: Annotated[DurabilityName, typer.Option(help="Durability to wait for.")] = DurabilityName.DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Append messages. Options are the defaults of fields that a message lacks.

    With --json a result per message is printed.
    Exit code 5 (or that of the first failure) if a message was not stored; the others are stored all the same.
    With the addresses of several logs it waits for a leader, for half a minute at most.

    Example: reput put orders 'hello' --key order-1 --tag created --delay 10m
    """
    defaults: dict[str, Any] = {
        "topic": topic,
        "tag": tag,
        "keys": key or [],
        "properties": dict(map(_property, properties or [])),
        "queue_id": queue,
        "sharding_key": sharding_key,
        "delay_level": delay_level,
        "deliver_at": None if deliver_at is None else parse_time(deliver_at),
        "delay_s": None if delay is None else parse_duration(delay) / 1000,
    }
    if file is not None and bodies:
        raise typer.BadParameter("give bodies or --file, not both")
    if not bodies and str(file or "-") == "-":
        standard_input("give bodies, or --file and a file's name")
        if is_terminal():
            what = "a JSON object" if file is not None else "a message"
            note_line(f"each line is {what} for {topic}; Ctrl-D ends")
    options = options_of(context)
    with client_of(context, "commitlog") as client:
        from cli.commands.messages import sending

        source = sending.source_of(bodies, file, defaults)
        log_count = len(options.targets("commitlog"))
        how = sending.producer_options(durability.name, options.timeout_s, log_count=log_count)
        with source, client.producer(how) as producer:
            is_interrupted = sending.send_all(
                producer, source, durability.name, as_json=as_json, delay_level=delay_level if file is None else 0
            )
    if is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _property(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value
