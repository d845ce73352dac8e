# SPDX-License-Identifier: Apache-2.0
"""`reput consume`: be a member of a group that shares messages."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json, warning_line
from cli.output.messages import message_fields, print_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reput_client import Received, ShareConsumer

    Step = Callable[[int, float], int]
    """Receives up to so many messages within so many seconds, prints them, and returns their number."""

BATCH_COUNT = 32
POLL_S = 2.0
"""Longest wait of a call. A stop may take as long while a call waits for messages."""


def consume(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group to be a member of.")],
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many messages.")] = None,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="End after so long without a message. [default: never]"),
    ] = None,
    tags: Annotated[str, typer.Option("--tags", help="'*', or tags separated by '||'.")] = "*",
    where: Annotated[
        str, typer.Option("--where", metavar="CONDITION", help="A condition of properties, in SQL92.")
    ] = "",
    as_json: JsonOption = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the bodies, each with a line end.")] = False,
) -> None:
    """Print messages that a group shares, and acknowledge them: each is delivered to a single member.

    A printed message is acknowledged, and is not delivered again. The command runs until Ctrl-C, unless --count or
    --wait end it. Without them it also continues while a service or the topic is missing, after a first call has
    worked. Exit code 3 if --wait is over and no message came.

    Example: reput consume orders --group billing --wait 5
    """
    if as_json and raw:
        raise typer.BadParameter("--json and --raw exclude each other")
    with (
        client_of(context, "delivery") as client,
        client.share_consumer(topic, group=group, tags=tags, where=where) as consumer,
    ):

        def step(room: int, poll_s: float) -> int:
            received = consumer.receive(room, poll_s)
            _print(consumer, received, as_json=as_json, raw=raw)
            return len(received)

        if count is None and wait is None:
            go_on(step)
        printed_count = _within(step, count, wait)
    if not printed_count:
        raise CommandFailed("NO_MESSAGES", f"no message of {topic} came for group {group}", code=ExitCode.NOT_FOUND)


def _within(step: Step, count: int | None, wait: float | None) -> int:
    """Print up to `count` messages, until none came for `wait` seconds. Returns their number. Raises ReputError."""
    printed_count, idle_s = 0, 0.0
    while count is None or printed_count < count:
        room = BATCH_COUNT if count is None else min(BATCH_COUNT, count - printed_count)
        poll_s = POLL_S if wait is None else min(POLL_S, max(wait - idle_s, 0.0))
        received_count = step(room, poll_s)
        printed_count += received_count
        idle_s = 0.0 if received_count else idle_s + poll_s
        if wait is not None and not received_count and idle_s >= wait:
            break
    return printed_count


def go_on(step: Step, sleep: Callable[[float], None] = time.sleep) -> NoReturn:
    """Print messages until Ctrl-C, through outages, as `ShareConsumer.run` does. Raises ReputError.

    An outage is reported when the client's own retries are over, and again when it ends. A failure before a first call
    has worked is raised: it is most likely a wrong address or a misspelt topic.
    """
    from reput_client import ReputError, RetryPolicy
    from reput_client.core.sharing.outage import Outage

    outage = Outage("consuming", RetryPolicy(), tell=warning_line, told_after=1)
    has_worked = False
    while True:
        try:
            step(BATCH_COUNT, POLL_S)
        except ReputError as error:
            delay_s = outage.on_failure(error, time.monotonic()) if has_worked else None
            if delay_s is None:
                raise
            sleep(delay_s)
        else:
            outage.on_success(time.monotonic())
            has_worked = True


def _print(consumer: ShareConsumer, received: Sequence[Received], *, as_json: bool, raw: bool) -> None:
    """Print messages, and acknowledge them. Messages that could not be printed are released at once."""
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
