# SPDX-License-Identifier: Apache-2.0
"""`reput pull`, `reput tail` and `reput query …`: commands that read messages."""

from __future__ import annotations

import itertools
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.typed.group import command_group
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption
from cli.output.messages import print_message
from cli.output.moments import TIME_FORMS, parse_moment
from libs.figures import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reput_client import Client, Message

query = command_group("Find messages by key, time or id.")

TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
QueueOption = Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue. [default: all]")]
TagsOption = Annotated[str, typer.Option("--tags", help="'*', or tags separated by '||'.")]
WhereOption = Annotated[
    str, typer.Option("--where", metavar="CONDITION", help="Of properties: \"price > 10 AND region = 'eu'\".")
]
RawOption = Annotated[bool, typer.Option("--raw", help="Print only the bodies, as they are, each with a line end.")]
StartOption = Annotated[str | None, typer.Option("--start", metavar="TIME", help=f"Earliest store time: {TIME_FORMS}.")]
EndOption = Annotated[str | None, typer.Option("--end", metavar="TIME", help="Latest store time, exclusive.")]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Most messages. [default: all]")]


def pull(
    context: typer.Context,
    topic: TopicArgument,
    queue: QueueOption = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="First queue offset. [default: the oldest]", show_default=False)
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Most messages, over all queues.")] = 32,
    tags: TagsOption = "*",
    where: WhereOption = "",
    wait: Annotated[float, typer.Option(min=0, max=30, help="Seconds to wait for the first message of a queue.")] = 0,
    as_json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Read messages of a topic by queue offset. Exit code 3 if the topic or queue has none.

    Example: reput pull orders --queue 0 --count 5
    """
    _check_form(as_json=as_json, raw=raw)
    with client_of(context, "indexer") as client:
        queue_ids = [queue] if queue is not None else [known.queue_id for known in client.queues.list(topic)]
        printed_count = 0
        for queue_id in queue_ids:
            found = _pull_queue(client, topic, queue_id, offset, count - printed_count, tags, where, wait)
            printed_count += _print_some(found, None, as_json=as_json, raw=raw)
        if not printed_count:
            raise _nothing(client, topic, "nothing to read", queue=queue, offset=offset)


def tail(
    context: typer.Context,
    topic: TopicArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new messages until interrupted.")
    ] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Number of newest messages to begin with.")] = 10,
    queue: QueueOption = None,
    tags: TagsOption = "*",
    where: WhereOption = "",
    as_json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Print the newest messages of a topic, and follow its end with -f. Exit code 3 if there is no such topic.

    Example: reput tail orders -f --raw
    """
    _check_form(as_json=as_json, raw=raw)
    with client_of(context, "indexer") as client:
        ends = {
            found.queue_id: (found.min_queue_offset, found.max_queue_offset)
            for found in client.queues.list(topic)
            if queue in (None, found.queue_id)
        }
        if not ends:
            _check_exists(client, topic, queue)
        newest: list[Message] = []
        for queue_id, (first, end) in ends.items():
            start = max(first, end - count)
            newest += _pull_queue(client, topic, queue_id, start, end - start, tags, where, 0, end=end)
        newest.sort(key=lambda message: message.physical_offset)
        _print_some(newest[max(0, len(newest) - count) :], None, as_json=as_json, raw=raw)
        if not follow:
            return
        sys.stdout.flush()  # a pipe holds lines back until there are many
        queue_ids = None if queue is None else [queue]
        with client.consumer(topic, queue_ids=queue_ids, tags=tags, where=where) as consumer:
            for known, position in consumer.positions().items():
                _, end = ends.get(known.queue_id, (0, 0))
                if position != end:
                    consumer.seek(known, end)
            for message in consumer:
                print_message(message, as_json=as_json, raw=raw)
                sys.stdout.flush()


@query.command("key")
def query_key(
    context: typer.Context,
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(help="A key of the message, or its unique id.")],
    start: StartOption = None,
    end: EndOption = None,
    where: WhereOption = "",
    limit: LimitOption = None,
    as_json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Print the messages that have a key, newest first. Exit code 3 if there is none.

    Example: reput query key orders order-1 --start -1h
    """
    _check_form(as_json=as_json, raw=raw)
    with client_of(context, "indexer") as client:
        found = client.query.by_key(
            topic, key, start=parse_moment(start), end=parse_moment(end), where=where, page_size=min(limit or 0, 1024)
        )
        if not _print_some(found, limit, as_json=as_json, raw=raw):
            raise _nothing(client, topic, f"no message has the key {key!r}")


@query.command("time")
def query_time(
    context: typer.Context,
    topic: TopicArgument,
    start: StartOption = None,
    end: EndOption = None,
    queue: QueueOption = None,
    where: WhereOption = "",
    limit: LimitOption = None,
    as_json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Print the messages of a time range by queue and offset. Exit code 3 if there is none.

    Example: reput query time orders --start yesterday --end 01:00
    """
    _check_form(as_json=as_json, raw=raw)
    with client_of(context, "indexer") as client:
        span, size = {"start": parse_moment(start), "end": parse_moment(end)}, min(limit or 0, 1024)
        found = client.query.by_time(topic, **span, queue_id=queue, where=where, page_size=size)
        if not _print_some(found, limit, as_json=as_json, raw=raw):
            raise _nothing(client, topic, "no message in this time range", queue=queue)


@query.command("id")
def query_id(
    context: typer.Context,
    message_id: Annotated[str, typer.Argument(help="Offset message id, or unique id with --topic.")],
    topic: Annotated[str, typer.Option(help="Topic, for a unique id.")] = "",
    as_json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Print the message with an id. Exit code 3 if there is none.

    Example: reput query id 7F00000100002A9F0000000000000000
    """
    _check_form(as_json=as_json, raw=raw)
    from reput_client import InvalidArgumentError, NotFoundError

    with client_of(context, "indexer") as client:
        try:
            message = client.query.by_id(message_id, topic=topic)
        except (InvalidArgumentError, NotFoundError) as error:
            if topic or not re.fullmatch("[0-9A-Fa-f]{32}", message_id):
                raise
            text = f"{error.text}; if it is a unique id, --topic is needed"
            raise type(error)(text, code=error.code, reason=error.reason) from error
        print_message(message, as_json=as_json, raw=raw)


def _print_some(messages: Iterable[Message], limit: int | None, *, as_json: bool, raw: bool) -> int:
    """Print up to `limit` messages, all without a limit. Returns their number."""
    count = 0
    for message in itertools.islice(messages, limit):
        print_message(message, as_json=as_json, raw=raw)
        count += 1
    return count


def _pull_queue(
    client: Client,
    topic: str,
    queue_id: int,
    offset: int | None,
    count: int,
    tags: str,
    where: str,
    wait_s: float,
    *,
    end: int | None = None,
) -> list[Message]:
    """Return up to `count` messages of a queue from an offset (None: the oldest) on, below `end`."""
    from reput_client import PullStatus

    messages: list[Message] = []
    position = offset if offset is not None else 0
    while len(messages) < count and (end is None or position < end):
        room = min(count - len(messages), 4096)
        result = client.queues.pull(topic, queue_id, position, count=room, tags=tags, where=where, wait_s=wait_s)
        if offset is not None and position == offset and result.status is PullStatus.OFFSET_TOO_SMALL:
            text = f"queue {queue_id} begins at {result.min_queue_offset}"
            raise CommandFailed("OFFSET_TRIMMED", text, code=ExitCode.NOT_FOUND)
        messages += result.messages
        wait_s = 0
        if result.next_queue_offset == position:
            break
        position = result.next_queue_offset
        if position >= result.max_queue_offset:
            break
    return messages


def _nothing(
    client: Client, topic: str, what: str, *, queue: int | None = None, offset: int | None = None
) -> CommandFailed:
    """Return the error of a command that found nothing.

    Raises NotFoundError or CommandFailed if there is no such topic or queue.
    """
    ends = {found.queue_id: found.max_queue_offset for found in client.queues.list(topic)}
    if queue not in ends:
        _check_exists(client, topic, queue)
    shown = {queue: ends[queue]} if queue in ends else ends
    where = "; ".join(f"queue {queue_id} ends at {end}" for queue_id, end in shown.items()) if offset else ""
    return CommandFailed("NO_MESSAGES", f"{what} in topic {topic}{where and f': {where}'}", code=ExitCode.NOT_FOUND)


def _check_exists(client: Client, topic: str, queue: int | None) -> None:
    """Raise NotFoundError if there is no such topic, CommandFailed if it has no such queue."""
    found = client.topics.get(topic)
    queue_count = max(found.read_queue_count, found.write_queue_count)
    if queue is not None and queue >= queue_count:
        text = f"topic {topic} has no queue {queue}: {counted(queue_count, 'queue')}, from 0 on"
        raise CommandFailed("QUEUE_NOT_FOUND", text, code=ExitCode.NOT_FOUND)


def _check_form(*, as_json: bool, raw: bool) -> None:
    if as_json and raw:
        raise typer.BadParameter("give --json or --raw, not both")
