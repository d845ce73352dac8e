# SPDX-License-Identifier: Apache-2.0
"""`reput topics …`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.topic_changes import check_counts, check_retention, set_queues, unread_of, unread_text
from cli.commands.typed.confirm import YesOption, confirm
from cli.commands.typed.group import command_group
from cli.connection.addresses import away_text, is_listening, place_of, targets_of
from cli.connection.client import client_of, new_client, options_of
from cli.exit_codes import CommandFailed
from cli.output.lines import JsonOption, warning_line
from cli.output.tables import print_fields, print_rows
from libs.figures import many

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reput_client import Client

topics = command_group("Topics: list, show, create, change, purge, delete.")

NameArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
Yes = Annotated[bool, YesOption]
TOPIC_COLUMNS = (
    "name", "message_count", "first_store_time", "last_store_time", "read_queue_count", "write_queue_count",
    "is_readable", "is_writable", "retention_hours", "retention_bytes", "is_system", "set_apart",
)  # fmt: skip
SPARE_COLUMNS = (
    "set_apart",
    "is_system",
    "is_readable",
    "is_writable",
    "read_queue_count",
    "retention_bytes",
    "retention_hours",
)


@topics.command("list")
def list_topics(
    context: typer.Context,
    system: Annotated[bool, typer.Option("--system", help="Include topics that the store itself needs.")] = False,
    times: Annotated[
        bool | None,
        typer.Option(
            "--times/--no-times", help="Times of the oldest and newest message. [default: for up to 400 queues]"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List topics by name, with their messages as far as they are indexed.

    Without an Indexer there are no counts and no times.

    Example: reput topics list --system
    """
    with client_of(context, "commitlog") as client:
        found = list(client.topics.list(include_system=system))
    extents = _extents(context, times=times)
    rows = [{**topic._asdict(), **extents[topic.name]} for topic in found]
    print_rows(rows, TOPIC_COLUMNS, as_json=as_json, spare=SPARE_COLUMNS)


def _extents(context: typer.Context, *, times: bool | None) -> Mapping[str, dict[str, object]]:
    """Return the extent of each topic. For an Indexer that can't answer now, print a warning and do not wait."""
    from reput_client import ReputError, RetryPolicy

    from cli.commands.topic_extents import Extent, extents_of

    targets = targets_of(context.find_root().obj)
    why = "" if any(map(is_listening, targets["indexer"])) else away_text("indexer", targets)
    if not why:
        try:
            with new_client(options_of(context), RetryPolicy(retries=1)) as client:
                found = extents_of(client, times=times)
            return defaultdict(Extent().fields, {name: extent.fields() for name, extent in found.items()})
        except ReputError as error:
            why = str(error)
    warning_line(f"messages are not counted: {why}")
    return defaultdict(lambda: dict.fromkeys(Extent().fields()))


@topics.command("get")
def get_topic(context: typer.Context, topic_name: NameArgument, as_json: JsonOption = False) -> None:
    """Show a topic and its queues.

    Example: reput topics get orders
    """
    with client_of(context, "commitlog") as client:
        topic = client.topics.get(topic_name)
        queues = [
            {"queue_id": queue.queue_id, "min": queue.min_queue_offset, "max": queue.max_queue_offset}
            for queue in client.queues.list(topic_name)
        ]
    if as_json:
        print_fields({**topic._asdict(), "queues": queues}, as_json=True)
        return
    print_fields(topic._asdict(), as_json=False)
    if queues:
        print_rows(queues, ("queue_id", "min", "max"), as_json=False)


@topics.command(
    "update",
    help="Change a topic. Options that are not given stay.\n\nExample: reput topics update orders --not-writable",
)
@topics.command(
    "create", help="Create a topic.\n\nExample: reput topics create orders --write-queues 8 --read-queues 8"
)
def create_or_update_topic(
    context: typer.Context,
    topic_name: NameArgument,
    queues: Annotated[
        int | None,
        typer.Option(min=1, help="Queues to read and to write. Of an existing topic they change in a safe order."),
    ] = None,
    read_queues: Annotated[int | None, typer.Option(min=1, help="Queues that consumers read.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="Queues that producers write.")] = None,
    readable: Annotated[
        bool | None,
        typer.Option(
            "--readable/--not-readable",
            help="Consumers may read; kept for RocketMQ, the Indexer does not enforce it.",
        ),
    ] = None,
    writable: Annotated[bool | None, typer.Option("--writable/--not-writable", help="Producers may write.")] = None,
    retention_hours: Annotated[
        int | None,
        typer.Option(min=0, max=876_000, help="Messages that are older expire. 0: no rule of its own."),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="The oldest messages expire while the topic's records have more bytes. 0: no limit."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it hides messages that groups have not read.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a topic or change it, as the command's name says."""
    has_retention = bool(retention_hours or retention_bytes)
    check_counts(queues, read_queues, write_queues, has_retention=has_retention, force=force)
    others: dict[str, Any] = {
        "is_readable": readable,
        "is_writable": writable,
        "retention_hours": retention_hours,
        "retention_bytes": retention_bytes,
    }
    with client_of(context, "commitlog") as client:
        if context.command.name == "create":
            reads, writes = (read_queues, write_queues) if queues is None else (queues, queues)
            topic = client.topics.create(topic_name, read_queue_count=reads, write_queue_count=writes, **others)
        else:
            if has_retention and not force:
                client.topics.get(topic_name)
                check_retention(context, client, topic_name, hours=retention_hours, size_bytes=retention_bytes)
            if queues is not None:
                set_queues(context, client, topic_name, queues, force=force)
            topic = client.topics.update(
                topic_name, read_queue_count=read_queues, write_queue_count=write_queues, **others
            )
    print_fields(topic._asdict(), as_json=as_json)
    if topic.read_queue_count != topic.write_queue_count:
        warning_line(
            f"{topic_name} has {topic.read_queue_count} queues to read and {topic.write_queue_count} to write: Reput's "
            "readers read all of them, RocketMQ's own broker and clients the former only"
        )


@topics.command("delete")
def delete_topic(
    context: typer.Context, topic_name: NameArgument, yes: Yes = False, as_json: JsonOption = False
) -> None:
    """Delete a topic. No reader gets its messages any more.

    It asks first, and says how much that is. If the topic is created again it begins behind the old messages: its queue
    offsets continue where they ended, so groups and other readers keep their places and get each new message. The bytes
    stay on the disk until they expire. `reput index remove-unused` removes its queues.

    Example: reput topics delete orders --yes
    """
    with client_of(context, "commitlog") as client:
        client.topics.get(topic_name)
        if not yes:
            place = place_of(context.find_root().obj, "commitlog")
            confirm(f"delete topic {topic_name}{_extent(context, client, topic_name)}", place=place, yes=False)
        client.topics.delete(topic_name)
    print_fields({"deleted": topic_name}, as_json=as_json)


@topics.command("purge")
def purge_topic(
    context: typer.Context, topic_name: NameArgument, yes: Yes = False, as_json: JsonOption = False
) -> None:
    """Take all messages of a topic away from readers. The topic stays, with its queues and groups.

    It asks first, and says how much that is. Queue offsets continue where they are, so groups and other readers keep
    their places and get each later message. The bytes stay on the disk until they expire. It can't be undone.

    Example: reput topics purge orders --yes
    """
    with client_of(context, "commitlog") as client:
        client.topics.get(topic_name)
        if not yes:
            place = place_of(context.find_root().obj, "commitlog")
            confirm(f"purge topic {topic_name}{_extent(context, client, topic_name)}", place=place, yes=False)
        client.topics.purge(topic_name)
    print_fields({"purged": topic_name}, as_json=as_json)


def _extent(context: typer.Context, client: Client, topic_name: str) -> str:
    """Return the extent of a topic, as far as the Indexer knows it, and how much of it groups have not read."""
    from reput_client import ReputError

    try:
        counts = [queue.max_queue_offset - queue.min_queue_offset for queue in client.queues.list(topic_name)]
    except ReputError:
        return ", whose messages can't be counted now; no reader gets them any more"
    if not sum(counts):
        return ", which has no messages"
    try:
        behind = unread_of(context, client, topic_name)
    except (ReputError, CommandFailed):
        behind = {}  # Delivery is away: the question does not need it
    unread = f", {unread_text(behind)}" if behind else ""
    return f", {many(sum(counts), 'message')} in {many(len(counts), 'queue')}{unread}; no reader gets them any more"
