# SPDX-License-Identifier: Apache-2.0
"""`reput consume`: be a member of a group that shares messages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json
from cli.output.messages import message_fields, print_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reput_client import Received, ShareConsumer

BATCH_COUNT = 32
POLL_S = 2.0
"""How long one call waits; so long a stop may take on the way to an answer that brings messages."""


def consume(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group to be a member of.")],
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many messages.")] = None,
    wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="End after so long without one. [default: never]")
    ] = None,
    tags: Annotated[str, typer.Option("--tags", help="'*', or tags separated by '||'; the same for the group.")] = "*",
    where: Annotated[
        str, typer.Option("--where", metavar="CONDITION", help="Of properties; the same for the whole group.")
    ] = "",
    as_json: JsonOption = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the bodies, each with a line end.")] = False,
) -> None:
    """Print messages that a group shares, and acknowledge them: each goes to one member.

    What was printed is acknowledged, and does not come again. It goes on until Ctrl-C, unless --count or --wait end it.
    Exit code 3 if --wait is over and nothing came.

    Example: reput consume orders --group billing --wait 5
    """
    if as_json and raw:
        raise typer.BadParameter("--json and --raw exclude each other")
    printed_count = 0
    with (
        client_of(context, "delivery") as client,
        client.share_consumer(topic, group=group, tags=tags, where=where) as consumer,
    ):
        idle_s = 0.0
        while count is None or printed_count < count:
            room = BATCH_COUNT if count is None else min(BATCH_COUNT, count - printed_count)
            poll_s = POLL_S if wait is None else min(POLL_S, max(wait - idle_s, 0.0))
            received = consumer.receive(room, poll_s)
            _print(consumer, received, as_json=as_json, raw=raw)
            printed_count += len(received)
            idle_s = 0.0 if received else idle_s + poll_s
            if wait is not None and not received and idle_s >= wait:
                break
    if not printed_count:
        raise CommandFailed("NO_MESSAGES", f"no message of {topic} came for group {group}", code=ExitCode.NOT_FOUND)


def _print(consumer: ShareConsumer, received: Sequence[Received], *, as_json: bool, raw: bool) -> None:
    """Print messages, and acknowledge them. Those that could not be printed go back at once."""
    printed_count = 0
    try:
        for one in received:
            if as_json:
                print_json({**message_fields(one.message), "attempt": one.attempt})
            else:
                print_message(one.message, as_json=False, raw=raw)
            sys.stdout.flush()
            printed_count += 1
    finally:
        if received[:printed_count]:
            consumer.ack(*received[:printed_count])
        if received[printed_count:]:
            consumer.release(*received[printed_count:])
