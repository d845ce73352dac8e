# SPDX-License-Identifier: Apache-2.0
"""`reput shards …`: several stores as one, behind a gateway that knows all of them."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.connection.client import options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, warning_line
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reput_client import Client, TopicShare

    from libs.shards.shards_file import Shard

shards = command_group("Shards: list them, make topics that lie on all of them, show where a topic is.")

FileOption = Annotated[
    Path,
    typer.Option(
        "--shards-file",
        envvar="REPUT_CLIENT_SHARDS_FILE",
        metavar="FILE",
        help="TOML file that names the shards, as the gateway has it.",
    ),
]
DEFAULT_FILE = Path("reput-data/shards.toml")
HASH_COUNT = 2**32


@shards.command("list")
def list_shards(context: typer.Context, shards_file: FileOption = DEFAULT_FILE, as_json: JsonOption = False) -> None:
    """List the shards with their topics, messages and bytes. A shard that is away has its error.

    Example: reput shards list --shards-file reput-data/shards.toml
    """
    with _clients(context, shards_file) as clients:
        rows = [{"shard": name} | _figures(client) for name, client in clients.items()]
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
    topic_name: Annotated[str, typer.Argument(help="Name of the topic.")],
    queues: Annotated[int, typer.Option(min=1, max=65_535, help="Queues over all shards, shared evenly.")] = 0,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Create a topic that lies on all shards: each has some of its queues. A repeated call completes a broken-off call.

    Without --queues each shard has four.

    Example: reput shards create orders --queues 12
    """
    from reput_client import AlreadyExistsError, QueueRange, TopicShare

    from libs.shards.change import first_shares

    with _clients(context, shards_file) as clients:
        shares = {
            name: TopicShare(share.version, tuple(QueueRange(*_values(queue)) for queue in share.queues))
            for name, share in first_shares(list(clients), queues or 4 * len(clients)).items()
        }
        for name, client in clients.items():
            _check_absent(topic_name, name, client, shares.get(name))
        for name, share in shares.items():
            count = share.queues[-1].queue_id + 1
            try:
                clients[name].topics.create(topic_name, read_queue_count=count, write_queue_count=count, share=share)
            except AlreadyExistsError:
                _check_absent(topic_name, name, clients[name], share)
    print_rows(_rows(shares), _COLUMNS, as_json=as_json)


@shards.command("topic")
def show_topic(
    context: typer.Context,
    topic_name: Annotated[str, typer.Argument(help="Name of the topic.")],
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Show where the queues of a topic are, with the part of the keys and the messages of each.

    Example: reput shards topic orders
    """
    from reput_client import NotFoundError, ReputError

    shares: dict[str, TopicShare | None] = {}
    counts: dict[tuple[str, int], int] = {}
    failures: list[ReputError] = []
    with _clients(context, shards_file) as clients:
        for name, client in clients.items():
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
    rows: list[dict[str, Any]] = _rows({name: share for name, share in shares.items() if share is not None})
    whole = [name for name, share in shares.items() if share is None]
    rows += [dict.fromkeys(_COLUMNS) | {"shard": name, "queue_id": number} for name, number in counts if name in whole]
    for row in rows:
        row["messages"] = counts.get((row["shard"], row["queue_id"]), 0)
    rows.sort(key=lambda row: row["queue_id"])
    print_rows(rows, (*_COLUMNS, "messages"), as_json=as_json)


_COLUMNS = ("queue_id", "shard", "keys_percent", "first_hash", "last_hash")


def _rows(shares: Mapping[str, TopicShare]) -> list[dict[str, Any]]:
    return [
        {
            "queue_id": queue.queue_id,
            "shard": name,
            "keys_percent": round(100 * (queue.last_hash - queue.first_hash + 1) / HASH_COUNT, 2),
            "first_hash": queue.first_hash,
            "last_hash": queue.last_hash,
        }
        for name, share in shares.items()
        for queue in share.queues
    ]


def _values(queue: Any) -> tuple[int, int, int]:
    return queue.queue_id, queue.first_hash, queue.last_hash


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


@contextmanager
def _clients(context: typer.Context, file: Path) -> Iterator[Mapping[str, Client]]:
    """Make a client for each shard of the file, with the options before the command. Raises CommandFailed."""
    from dataclasses import replace

    from reput_client import RetryPolicy

    from cli.connection.client import new_client

    options = options_of(context)
    with ExitStack() as opened:
        clients = {}
        for name, shard in _shards(file).items():
            own = replace(
                options,
                commitlog=shard.commitlog,
                indexer=shard.indexer,
                delivery=shard.delivery,
                janitor=shard.janitor or options.janitor,
            )
            clients[name] = opened.enter_context(new_client(own, RetryPolicy(retries=2)))
        yield clients


def _shards(file: Path) -> Mapping[str, Shard]:
    from libs.formats.errors import BadField
    from libs.shards import shards_file

    try:
        return shards_file.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"{file}: {error.strerror}; --shards-file or REPUT_CLIENT_SHARDS_FILE names the file of the gateway"
        raise CommandFailed("NO_SHARDS_FILE", text, code=ExitCode.USAGE) from error
    except (BadField, UnicodeDecodeError) as error:
        raise CommandFailed("BAD_SHARDS_FILE", f"{file}: {error}", code=ExitCode.USAGE) from error
