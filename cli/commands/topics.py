# SPDX-License-Identifier: Apache-2.0
"""`reput topics …` and `reput groups …`."""

from dataclasses import asdict, fields
from typing import Annotated

import typer
from reput_client import ConsumerOffset, Topic

from cli.connection import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output import JsonOption, parse_time, print_fields, print_rows

topics = typer.Typer(no_args_is_help=True, help="Topics: list, look, make, change, forget.")
groups = typer.Typer(no_args_is_help=True, help="Consumer groups: where they are, how far behind, move or forget them.")

NameArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
TOPIC_COLUMNS = tuple(field.name for field in fields(Topic))


@topics.command("list")
def list_topics(
    context: typer.Context,
    system: Annotated[bool, typer.Option("--system", help="Include those that the store itself needs.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List topics by name."""
    with client_of(context) as client:
        print_rows(map(asdict, client.topics.list(include_system=system)), TOPIC_COLUMNS, as_json=as_json)


@topics.command("get")
def get_topic(context: typer.Context, topic_name: NameArgument, as_json: JsonOption = False) -> None:
    """Show a topic and its queues."""
    with client_of(context) as client:
        topic = client.topics.get(topic_name)
        queues = [
            {"queue_id": queue.queue_id, "min": queue.min_queue_offset, "max": queue.max_queue_offset}
            for queue in client.queues.list(topic_name)
        ]
    if as_json:
        print_fields({**asdict(topic), "queues": queues}, as_json=True)
        return
    print_fields(asdict(topic), as_json=False)
    if queues:
        print_rows(queues, ("queue_id", "min", "max"), as_json=False)


@topics.command("update", help="Change a topic. What is not named stays.")
@topics.command("create", help="Make a topic.")
def create_or_update_topic(
    context: typer.Context,
    topic_name: NameArgument,
    read_queues: Annotated[int | None, typer.Option(min=1, help="Queues that consumers read.")] = None,
    write_queues: Annotated[int | None, typer.Option(min=1, help="Queues that producers write.")] = None,
    readable: Annotated[
        bool | None,
        typer.Option(
            "--readable/--not-readable",
            help="Consumers may read; kept for RocketMQ, Reput's Indexer does not enforce it.",
        ),
    ] = None,
    writable: Annotated[bool | None, typer.Option("--writable/--not-writable", help="Producers may write.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a topic or change it, as the command's name says."""
    with client_of(context) as client:
        put = client.topics.create if context.command.name == "create" else client.topics.update
        topic = put(
            topic_name,
            read_queue_count=read_queues,
            write_queue_count=write_queues,
            is_readable=readable,
            is_writable=writable,
        )
    print_fields(asdict(topic), as_json=as_json)


@topics.command("delete")
def delete_topic(context: typer.Context, topic_name: NameArgument, as_json: JsonOption = False) -> None:
    """Forget a topic. Its messages stay until they expire."""
    with client_of(context) as client:
        client.topics.delete(topic_name)
    print_fields({"deleted": topic_name}, as_json=as_json)


@groups.command("list")
def list_groups(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List groups with their offsets and lag, one row per queue."""
    with client_of(context) as client:
        rows = (
            {"group": found.name, **asdict(offset)}
            for found in client.groups.list()
            if group in (None, found.name)
            for offset in found.offsets
        )
        print_rows(rows, ("group", "topic", "queue_id", "queue_offset", "lag"), as_json=as_json)


@groups.command("commit")
def commit_group(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    topic_name: NameArgument,
    queue: Annotated[int, typer.Option(help="Queue within the topic.")],
    offset: Annotated[int, typer.Option(help="Next queue offset to read.")],
    as_json: JsonOption = False,
) -> None:
    """Store the next queue offset of a group."""
    with client_of(context) as client:
        client.groups.commit(group, [ConsumerOffset(topic_name, queue, offset)])
    print_fields({"group": group, "topic": topic_name, "queue_id": queue, "queue_offset": offset}, as_json=as_json)


@groups.command("reset")
def reset_group(
    context: typer.Context,
    group: Annotated[str, typer.Argument(help="Name of the group.")],
    topic_name: NameArgument,
    to: Annotated[str, typer.Option(metavar="earliest|latest|TIME", help="Where to; a time is ISO 8601 or ms.")],
    as_json: JsonOption = False,
) -> None:
    """Move all of a group's offsets of a topic."""
    with client_of(context) as client:
        place = to if to in ("earliest", "latest") else parse_time(to)
        offsets = client.groups.reset(group, topic_name, place)  # type: ignore[arg-type]  # one of the two words, or a time
    print_rows(map(asdict, offsets), ("topic", "queue_id", "queue_offset", "lag"), as_json=as_json)


@groups.command("delete")
def delete_groups(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of groups.")],
    topic_name: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Only the offsets of this topic.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Forget the offsets of groups. Exit code 3 if a group has none. The others are forgotten all the same.

    A consumer of the group that commits makes it anew.
    """
    with client_of(context) as client:
        rows = [{"group": name, "deleted_offset_count": client.groups.delete(name, topic=topic_name)} for name in names]
    print_rows(rows, ("group", "deleted_offset_count"), as_json=as_json)
    unknown = [str(row["group"]) for row in rows if not row["deleted_offset_count"]]
    if unknown:
        raise CommandFailed("NO_OFFSETS", f"no offsets of {', '.join(unknown)}", code=ExitCode.NOT_FOUND)
