# SPDX-License-Identifier: Apache-2.0
"""`topics update --queues`: the number of queues to read and to write, changed in an order that hides no message.

More queues: the queues to read first, so that no reader lacks a queue that producers write. Fewer queues: the queues to
write first. Reput's readers read all queues that ever had a message; RocketMQ's read the queues to read only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.commands.groups.known import offsets_of, sharing_groups
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.figures import many

if TYPE_CHECKING:
    import typer
    from reput_client import Client, Topic

NAMED_COUNT_MAX = 5


def check_counts(queues: int | None, read_queues: int | None, write_queues: int | None, *, force: bool) -> None:
    """Raise CommandFailed for options that do not go together."""
    if queues is not None and (read_queues is not None or write_queues is not None):
        text = "--queues sets both counts: leave out --read-queues and --write-queues"
        raise CommandFailed("BAD_OPTIONS", text, code=ExitCode.USAGE)
    if force and queues is None:
        raise CommandFailed("BAD_OPTIONS", "--force is for --queues", code=ExitCode.USAGE)


def set_queues(context: typer.Context, client: Client, topic_name: str, queues: int, *, force: bool) -> Topic:
    """Give a topic this number of queues. Raises CommandFailed if a group has unread messages in the others."""
    topic = client.topics.get(topic_name)
    if queues < topic.read_queue_count and not force:
        _check_read(context, client, topic_name, queues)
    if queues >= topic.read_queue_count:
        client.topics.update(topic_name, read_queue_count=queues)
        return client.topics.update(topic_name, write_queue_count=queues)
    client.topics.update(topic_name, write_queue_count=queues)
    return client.topics.update(topic_name, read_queue_count=queues)


def _check_read(context: typer.Context, client: Client, topic_name: str, queues: int) -> None:
    """Raise CommandFailed if a known group has not read all messages of the queues from this number on."""
    sharing = sharing_groups(context, client, None)
    behind: dict[str, int] = {}
    for name, group in sharing.items():
        for queue in group.queues:
            if queue.topic == topic_name and queue.queue_id >= queues and queue.lag:
                behind[name] = behind.get(name, 0) + queue.lag
    for name, offset in offsets_of(client, None, sharing):
        if offset.topic == topic_name and offset.queue_id >= queues and offset.lag:
            behind[name] = behind.get(name, 0) + offset.lag
    if behind:
        named = ", ".join(sorted(behind)[:NAMED_COUNT_MAX])
        text = (
            f"{many(len(behind), 'group')} ({named}) have {many(sum(behind.values()), 'unread message')} in queues "
            f"from {queues} on, which RocketMQ's clients would no longer read; wait until they are read, or say --force"
        )
        raise CommandFailed("UNREAD_MESSAGES", text, code=ExitCode.REFUSED)
