# SPDX-License-Identifier: Apache-2.0
"""`reput delay …`: messages that wait for their time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json
from cli.output.messages import message_fields
from cli.output.moments import TIME_FORMS, parse_moment, time_text
from cli.output.tables import print_fields, print_rows

if TYPE_CHECKING:
    from reput_client import DelayedMessage

delay = command_group("Messages that wait for their time: list, cancel.")

COLUMNS = ("delivery_time", "topic", "message_id", "keys", "body_bytes")
SPARE_COLUMNS = ("body_bytes", "keys")


@delay.command("list")
def list_delayed(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Only messages for this topic. [default: all]")] = "",
    key: Annotated[str, typer.Option(help="Only messages with this key, or unique id.")] = "",
    start: Annotated[
        str | None, typer.Option("--start", metavar="TIME", help=f"Due at this time or later: {TIME_FORMS}.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Due before this time.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most messages. [default: all]")] = None,
    as_json: JsonOption = False,
) -> None:
    """List messages that wait for their time, the earliest first. Exit code 3 if there is none.

    Example: reput delay list reminders --end +1h
    """
    with client_of(context, "delivery") as client:
        found = client.delayed.list(topic, key=key, start=parse_moment(start), end=parse_moment(end))
        some = list(itertools.islice(found, limit))
    if not some:
        raise CommandFailed("NO_MESSAGES", "no such message waits for its time", code=ExitCode.NOT_FOUND)
    if as_json:
        for one in some:
            print_json(_document(one))
        return
    print_rows(map(_row, some), COLUMNS, as_json=False, spare=SPARE_COLUMNS)


@delay.command("cancel")
def cancel_delayed(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="Name of the topic to which it is delivered.")],
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Its unique id, or its offset id.")],
    as_json: JsonOption = False,
) -> None:
    """Cancel a message before it is delivered: then it is never delivered. Exit code 3 if there is none.

    Example: reput delay cancel reminders C0A8010A1F9018B4AAC2000000640000
    """
    with client_of(context, "delivery") as client:
        cancelled = client.delayed.cancel(topic, message_id)
    if as_json:
        print_json(_document(cancelled))
    else:
        print_fields(
            {"cancelled": cancelled.message_id, "was_due": time_text(cancelled.delivery_time_ms)}, as_json=False
        )


def _row(one: DelayedMessage) -> dict[str, Any]:
    return {
        "delivery_time": time_text(one.delivery_time_ms),
        "topic": one.topic,
        "message_id": one.message_id,
        "keys": " ".join(one.message.keys),
        "body_bytes": len(one.message.body),
    }


def _document(one: DelayedMessage) -> dict[str, Any]:
    """Return a message with its time and id, for --json."""
    head = {"topic": one.topic, "delivery_time_ms": one.delivery_time_ms, "message_id": one.message_id}
    return {**head, "message": message_fields(one.message)}
