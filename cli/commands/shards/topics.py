# SPDX-License-Identifier: Apache-2.0
"""`reput shards list`, `create`, `topic`: topics over shards as they are, and new topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.shards.group import DEFAULT_FILE, FileOption, TopicArgument, shards
from cli.commands.shards.opened import opened_shards
from cli.commands.shards.rows import COLUMNS, change_text, print_queues, queue_rows
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, warning_line
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reput_client import Client, TopicShare


@shards.command("list")
def list_shards(context: typer.Context, shards_file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """List the shards with their topics, messages and bytes. A shard that is away has its error.

    Example: reput shards list --shards-file reput-data/shards.toml
    """
    with opened_shards(context, shards_file) as opened:
        rows = [{"shard": name} | _figures(client) for name, client in opened.clients.items()]
    is_whole = not any("error" in row for row in rows)
    columns = ("shard", "topics", "queues", "messages", "bytes", *(() if is_whole else ("error",)))
    print_rows([dict.fromkeys(columns) | row for row in rows], columns, as_json=as_json)
    if not is_whole:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _figures(client: Client) -> dict[str, Any]:
    from reput_client import ReputError

    try:
        topics = list(client.topics.list())
        queues = [queue for topic in topics for queue in client.queues.list(topic.name)]
        status = client.admin.commitlog_status()
    except ReputError as error:
        return {"error": str(error)}
    return {
        "topics": len(topics),
        "queues": len(queues),
        "messages": sum(queue.max_queue_offset - queue.min_queue_offset for queue in queues),
        "bytes": status.max_physical_offset - status.min_physical_offset,
    }


@shards.command("create")
def create(
    context: typer.Context,
    topic_name: TopicArgument,
    queues: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Queues over all shards, shared evenly. [default: four for each shard]"),
    ] = None,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Create a topic that lies on all shards: each has some of its queues. A repeated call completes a broken-off call.

    Shards with `takes_topics = false` in the file get none.

    Example: reput shards create orders --queues 12
    """
    with opened_shards(context, shards_file) as opened:
        from reput_client import AlreadyExistsError

        from cli.commands.shards.plans import QUEUES_PER_SHARD
        from cli.commands.shards.shares import client_share
        from libs.shards.change import first_shares

        clients, taking = opened.clients, opened.for_topics
        known = first_shares(taking, queues or QUEUES_PER_SHARD * len(taking))
        shares = {name: client_share(share) for name, share in known.items()}
        for name, client in clients.items():
            _check_absent(topic_name, name, client, shares.get(name))
        for name, share in shares.items():
            count = share.queues[-1].queue_id + 1
            try:
                clients[name].topics.create(topic_name, read_queue_count=count, write_queue_count=count, share=share)
            except AlreadyExistsError:
                _check_absent(topic_name, name, clients[name], share)
    print_queues(queue_rows(known), COLUMNS, as_json=as_json)


@shards.command("topic")
def show_topic(
    context: typer.Context,
    topic_name: TopicArgument,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Show where the queues of a topic are, with the state, the part of the keys, and the messages of each.

    A sealed queue takes no messages any more: other queues have its keys, and name it as a parent.

    Example: reput shards topic orders
    """
    from reput_client import NotFoundError, ReputError

    shares: dict[str, TopicShare | None] = {}
    counts: dict[tuple[str, int], int] = {}
    failures: list[ReputError] = []
    with opened_shards(context, shards_file) as opened:
        for name, client in opened.clients.items():
            try:
                shares[name] = client.topics.get(topic_name).share
                for queue in client.queues.list(topic_name):
                    counts[name, queue.queue_id] = queue.max_queue_offset - queue.min_queue_offset
            except ReputError as error:
                failures.append(error)
                if not isinstance(error, NotFoundError):
                    warning_line(f"shard {name} is not in this list: {error}")
    if not shares:
        raise min(failures, key=lambda error: isinstance(error, NotFoundError))
    print_queues(_shown(topic_name, shares, counts), (*COLUMNS, "messages"), as_json=as_json)


def _shown(
    topic: str, shares: Mapping[str, TopicShare | None], counts: Mapping[tuple[str, int], int]
) -> list[dict[str, Any]]:
    """Return the rows of a topic's queues, and warn of a change that is under way."""
    from cli.commands.shards.shares import known_share
    from libs.shards.change import change_of

    known = {name: known_share(share) for name, share in shares.items() if share is not None}
    rows = queue_rows(known)
    for name, number in counts:
        if shares.get(name) is None:
            whole: dict[str, Any] = {"queue_id": number, "shard": name, "state": "open", "parents": []}
            rows.append(dict.fromkeys(COLUMNS) | whole)
    for row in rows:
        row["messages"] = counts.get((row["shard"], row["queue_id"]), 0)
    if (change := change_of(known)) is not None:
        text = f"a change of topic {topic} is under way: {change_text(change)}"
        warning_line(f"{text}; if no command makes it, `reput shards finish {topic}` finishes it")
    return sorted(rows, key=lambda row: int(row["queue_id"]))


def _check_absent(topic: str, shard: str, client: Client, share: TopicShare | None) -> None:
    """Return if a shard has no such topic, or has it with this share. Raises CommandFailed."""
    from reput_client import NotFoundError

    try:
        found = client.topics.get(topic)
    except NotFoundError:
        return
    if share is None or found.share != share:
        text = f"shard {shard} has a topic {topic} already, {'whole' if found.share is None else 'with another share'}"
        raise CommandFailed("SHARE_DIFFERS", text, code=ExitCode.REFUSED)
