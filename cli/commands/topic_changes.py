# SPDX-License-Identifier: Apache-2.0
"""Changes of a topic that could hide messages that a group has not read: fewer queues, and a shorter retention.

The number of queues to read and to write is changed in an order that hides no message. More queues: the queues to read
first, so that no reader lacks a queue that producers write. Fewer queues: the queues to write first. Reput's readers
read all queues that ever had a message; RocketMQ's read the queues to read only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.commands.groups.known import offsets_of, sharing_groups
from cli.connection.addresses import away_text, is_listening, targets_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import warning_line
from libs.figures import many

if TYPE_CHECKING:
    import typer
    from reput_client import Client, Topic

NAMED_COUNT_MAX = 5


def check_counts(
    queues: int | None, read_queues: int | None, write_queues: int | None, *, has_retention: bool, force: bool
) -> None:
    """Raise CommandFailed for options that do not go together."""
    if queues is not None and (read_queues is not None or write_queues is not None):
        text = "--queues sets both counts: leave out --read-queues and --write-queues"
        raise CommandFailed("BAD_OPTIONS", text, code=ExitCode.USAGE)
    if force and queues is None and not has_retention:
        text = "--force is for --queues, --retention-hours and --retention-bytes"
        raise CommandFailed("BAD_OPTIONS", text, code=ExitCode.USAGE)


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
    if behind := unread_of(context, client, topic_name, queues):
        text = (
            f"{unread_text(behind)} in queues from {queues} on, which RocketMQ's clients would no longer read; "
            "wait until they are read, or say --force"
        )
        raise CommandFailed("UNREAD_MESSAGES", text, code=ExitCode.REFUSED)


def unread_of(context: typer.Context, client: Client, topic_name: str, first_queue_id: int = 0) -> dict[str, int]:
    """Return how many messages each known group has not read, in the queues of a topic from this id on."""
    sharing = sharing_groups(context, client, None)
    behind: dict[str, int] = {}
    for name, group in sharing.items():
        for queue in group.queues:
            if queue.topic == topic_name and queue.queue_id >= first_queue_id and queue.lag:
                behind[name] = behind.get(name, 0) + queue.lag
    for name, offset in offsets_of(client, None, sharing):
        if offset.topic == topic_name and offset.queue_id >= first_queue_id and offset.lag:
            behind[name] = behind.get(name, 0) + offset.lag
    return behind


def unread_text(behind: dict[str, int]) -> str:
    """Return `2 groups (a, b) have 5 unread messages`."""
    named = ", ".join(sorted(behind)[:NAMED_COUNT_MAX])
    verb = "has" if len(behind) == 1 else "have"
    return f"{many(len(behind), 'group')} ({named}) {verb} {many(sum(behind.values()), 'unread message')}"


def check_retention(
    context: typer.Context, client: Client, topic_name: str, *, hours: int | None, size_bytes: int | None
) -> None:
    """Raise CommandFailed if a rule of retention would hide messages at once that a known group has not read.

    Print a warning if the Janitor or the Indexer can't tell.
    """
    from reput_client import ReputError

    targets = targets_of(context.find_root().obj)
    why = "" if any(map(is_listening, targets["janitor"])) else away_text("janitor", targets)
    if not why:
        try:
            unread = client.admin.unread_that_expire(topic_name, retention_hours=hours, retention_bytes=size_bytes)
        except ReputError as error:
            why = str(error)
        else:
            _check_missed(unread)
    if why:
        warning_line(f"not checked whether the rule hides messages that groups have not read: {why}")


def _check_missed(unread: dict[str, int]) -> None:
    """Raise CommandFailed if groups would miss messages."""
    if unread:
        text = (
            f"{unread_text(unread)} that would expire at once; wait until they are read, choose a longer retention, "
            "or say --force"
        )
        raise CommandFailed("UNREAD_MESSAGES", text, code=ExitCode.REFUSED)
