# SPDX-License-Identifier: Apache-2.0
"""`reput groups …`: groups that keep offsets, and groups that share messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.groups.known import find_sharing, offsets_of, sharing_groups
from cli.commands.typed.confirm import YesOption, confirm
from cli.commands.typed.group import command_group
from cli.connection.addresses import place_of
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption
from cli.output.moments import TIME_FORMS, parse_moment
from cli.output.tables import print_fields, print_rows
from libs.figures import many
from libs.formats.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reput_client import Client, ConsumerOffset, Queue, ShareGroup
    from reput_client.core.types import Place

groups = command_group("Consumer groups: show their lag and policies, move or delete them.")

GroupArgument = Annotated[str, typer.Argument(help="Name of the group.")]
TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
Yes = Annotated[bool, YesOption]
COLUMNS = (
    "group", "topic", "queue_id", "queue_offset", "lag", "oldest_s", "in_flight_count", "waiting_count", "is_shared",
)  # fmt: skip
SPARE_COLUMNS = ("is_shared", "oldest_s", "waiting_count")
QUEUE_COLUMNS = (
    "topic", "queue_id", "committed_queue_offset", "max_queue_offset", "lag", "in_flight_count", "waiting_count",
    "next_attempt", "held_count", "waits_for", "standstills",
)  # fmt: skip
MOVE_COLUMNS = ("topic", "queue_id", "from_queue_offset", "to_queue_offset", "settled_count")


@groups.command("list")
def list_groups(
    context: typer.Context,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List groups with their offsets and lag, with a row per queue.

    A group that shares messages has more columns: messages that receivers have (`in_flight_count`), messages that wait
    for the next attempt (`waiting_count`), and the age of the oldest message.

    Example: reput groups list --group readers
    """
    with client_of(context, "indexer") as client:
        sharing = sharing_groups(context, client, group)
        rows: list[dict[str, object]] = [
            {
                "group": name,
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "queue_offset": queue.committed_queue_offset,
                "lag": queue.lag,
                "oldest_s": queue.lag_s,
                "in_flight_count": queue.in_flight_count,
                "waiting_count": queue.waiting_count,
                "is_shared": True,
            }
            for name, found in sharing.items()
            for queue in found.queues
        ]
        others = {"oldest_s": None, "in_flight_count": None, "waiting_count": None, "is_shared": False}
        rows += [{"group": name, **one._asdict(), **others} for name, one in offsets_of(client, group, sharing)]
    rows.sort(key=lambda row: (str(row["group"]), str(row["topic"]), int(str(row["queue_id"]))))
    print_rows(rows, COLUMNS, as_json=as_json, spare=SPARE_COLUMNS)


@groups.command("show")
def show_group(context: typer.Context, group: GroupArgument, as_json: JsonOption = False) -> None:
    """Show a group: its policy if it shares messages, its offsets, its dead letters. Exit code 3 if there is none.

    Example: reput groups show billing
    """
    with client_of(context, "indexer") as client:
        sharing = find_sharing(context, client, group)
        if sharing is not None:
            print_fields(_fields(sharing), as_json=as_json)
            return
        offsets = [one._asdict() for _, one in offsets_of(client, group, {})]
    if not offsets:
        raise CommandFailed("GROUP_NOT_FOUND", f"nobody knows group {group}", code=ExitCode.NOT_FOUND)
    lag = sum(int(one["lag"]) for one in offsets)
    print_fields({"group": group, "is_shared": False, "lag": lag, "offsets": offsets}, as_json=as_json)


def _fields(group: ShareGroup) -> dict[str, object]:
    topics = [one.topic for one in group.filters]
    late = [queue.lag_s for queue in group.queues if queue.lag_s is not None]
    return {
        "group": group.name,
        "is_shared": True,
        "lag": sum(queue.lag for queue in group.queues),
        "waiting_bytes": sum(queue.lag_bytes for queue in group.queues),
        "oldest_s": max(late, default=None),
        "in_flight_count": sum(queue.in_flight_count for queue in group.queues),
        "waiting_count": sum(queue.waiting_count for queue in group.queues),
        "next_attempt": min((one.next_attempt for one in group.queues if one.next_attempt), default=None),
        "dead_letter_count": group.dead_letter_count,
        **asdict(group.policy),
        "filters": [asdict(one) for one in group.filters],
        "topics_of_differing_filters": [topic for topic, count in Counter(topics).items() if count > 1],
        "queues": [
            {
                **{name: getattr(queue, name) for name in QUEUE_COLUMNS},
                "waiting_bytes": queue.lag_bytes,
                "oldest_s": queue.lag_s,
            }
            for queue in group.queues
        ],
    }


@groups.command("message")
def show_message(
    context: typer.Context,
    group: GroupArgument,
    topic_name: TopicArgument,
    queue: Annotated[int, typer.Option(min=0, max=INT32_MAX, help="Queue within the topic.")],
    offset: Annotated[int, typer.Option(min=0, max=INT64_MAX, help="Queue offset of the message.")],
    as_json: JsonOption = False,
) -> None:
    """Show the state of a message at a group that shares messages. Exit code 3 if there is no such group.

    The `stage` is `not_delivered`, `in_flight`, `waiting` (for its next attempt), `held` (behind a message with the
    same ordering key, or for a member whose filter it passes), `dying` (its dead letter is being written), `settled`
    (also as a dead letter), or `no_position` (the group has not begun with the queue). `reput clients` has the
    receiver's connection by its number.

    Example: reput groups message billing orders --queue 0 --offset 12
    """
    from reput_client import NotFoundError

    with client_of(context, "delivery") as client:
        try:
            (state,) = client.share_groups.message_states(group, [(topic_name, queue, offset)])
        except NotFoundError:
            text = f"no group that shares messages has the name {group}: `reput groups list` shows all groups"
            raise CommandFailed("GROUP_NOT_FOUND", text, code=ExitCode.NOT_FOUND) from None
    place = {"group": group, "topic": topic_name, "queue_id": queue, "queue_offset": offset}
    print_fields(place | asdict(state), as_json=as_json)


@groups.command("set")
def set_group(
    context: typer.Context,
    group: GroupArgument,
    attempts: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Deliveries before a message is a dead letter.")
    ] = None,
    backoff: Annotated[
        list[float] | None,
        typer.Option(metavar="SECONDS", min=0, help="Delay after a nack, by attempts; may be repeated."),
    ] = None,
    invisible: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.001, help="Time that a message is its receiver's.")
    ] = None,
    ordered: Annotated[
        bool | None, typer.Option("--ordered/--not-ordered", help="Deliver messages of a sharding key one by one.")
    ] = None,
    from_end: Annotated[
        bool | None,
        typer.Option(
            "--from-end/--from-beginning", help="Its start in a topic. Queues that come later: from the beginning."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Change the policy of a group that shares messages, or make such a group. Options that are not given stay.

    Example: reput groups set billing --attempts 5 --backoff 1 --backoff 10 --ordered
    """
    given = {
        "attempts_max": attempts,
        "backoffs_s": tuple(backoff) if backoff else None,
        "invisible_s": invisible,
        "is_ordered": ordered,
        "from_end": from_end,
    }
    _change(context, group, {name: value for name, value in given.items() if value is not None}, as_json=as_json)


@groups.command("pause")
def pause_group(context: typer.Context, group: GroupArgument, as_json: JsonOption = False) -> None:
    """Stop all deliveries to a group, until `reput groups resume`. Messages in flight can be settled.

    Example: reput groups pause billing
    """
    _change(context, group, {"is_paused": True}, as_json=as_json, makes=False)


@groups.command("resume")
def resume_group(context: typer.Context, group: GroupArgument, as_json: JsonOption = False) -> None:
    """Resume deliveries to a group that was paused.

    Example: reput groups resume billing
    """
    _change(context, group, {"is_paused": False}, as_json=as_json, makes=False)


def _change(
    context: typer.Context, group: str, changes: dict[str, object], *, as_json: bool, makes: bool = True
) -> None:
    """Change the policy of a group. A group that does not exist yet is made only if `makes` is set."""
    from reput_client import NotFoundError, SharePolicy

    with client_of(context, "delivery") as client:
        try:
            before = client.share_groups.get(group).policy
        except NotFoundError:
            if not makes:
                text = f"no group that shares messages has the name {group}: `reput groups list` shows all groups"
                raise CommandFailed("GROUP_NOT_FOUND", text, code=ExitCode.NOT_FOUND) from None
            before = SharePolicy()
        changed = client.share_groups.set(group, replace(before, **changes))  # type: ignore[arg-type]  # checked above
    print_fields({"group": group, **asdict(changed.policy)}, as_json=as_json)


@groups.command("commit")
def commit_group(
    context: typer.Context,
    group: GroupArgument,
    topic_name: TopicArgument,
    queue: Annotated[int, typer.Option(min=0, max=INT32_MAX, help="Queue within the topic.")],
    offset: Annotated[int, typer.Option(min=0, max=INT64_MAX, help="Next queue offset to read.")],
    as_json: JsonOption = False,
) -> None:
    """Store the next queue offset of a group that keeps offsets.

    It is refused for a topic or a queue that is not there, and beyond the end of the queue.

    Example: reput groups commit readers orders --queue 0 --offset 12
    """
    from reput_client import ConsumerOffset

    with client_of(context, "indexer") as client:
        if _shares(find_sharing(context, client, group), topic_name):
            text = f"group {group} shares {topic_name}, and settles each message: `reput groups reset` moves it"
            raise CommandFailed("GROUP_SHARES", text, code=ExitCode.REFUSED)
        _check_place(client, topic_name, queue, offset)
        client.groups.commit(group, [ConsumerOffset(topic_name, queue, offset)])
    print_fields({"group": group, "topic": topic_name, "queue_id": queue, "queue_offset": offset}, as_json=as_json)


def _check_place(client: Client, topic_name: str, queue: int, offset: int) -> None:
    """Refuse a place that no reader can have."""
    topic = client.topics.get(topic_name)
    ends = {found.queue_id: found.max_queue_offset for found in client.queues.list(topic_name)}
    count = max(topic.read_queue_count, topic.write_queue_count, *(queue_id + 1 for queue_id in ends))
    if not 0 <= queue < count:
        text = f"topic {topic_name} has no queue {queue}, but queues 0 to {count - 1}"
        raise CommandFailed("QUEUE_NOT_FOUND", text, code=ExitCode.NOT_FOUND)
    end = ends.get(queue, 0)
    if not 0 <= offset <= end:
        text = f"queue {queue} of {topic_name} ends at queue offset {end}: --offset must be 0 to {end}, not {offset}"
        raise CommandFailed("OFFSET_BEYOND_END", text, code=ExitCode.REFUSED)


@groups.command("reset")
def reset_group(
    context: typer.Context,
    group: GroupArgument,
    topic_name: TopicArgument,
    to: Annotated[str, typer.Option(metavar="earliest|latest|TIME", help=f"The new place; a time is {TIME_FORMS}.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the moves, and make none.")] = False,
    yes: Yes = False,
    as_json: JsonOption = False,
) -> None:
    """Move a group in all queues of a topic.

    It asks first, and says how far the group is there. Messages in flight of a group that shares messages count as
    settled.

    Example: reput groups reset readers orders --to -1h --dry-run
    """
    place: Place = to if to in ("earliest", "latest") else parse_moment(to)  # type: ignore[assignment]  # these words
    with client_of(context, "indexer") as client:
        sharing = find_sharing(context, client, group)
        is_shared = _shares(sharing, topic_name)
        if dry_run:
            moves = _shared_moves(client, group, topic_name, place) if is_shared else []
            print_rows(moves or _moves(client, group, topic_name, place), MOVE_COLUMNS, as_json=as_json)
            return
        if not yes:
            where = place_of(context.find_root().obj, "delivery" if is_shared else "indexer")
            has = _shared_prospect(sharing, topic_name) if is_shared else _prospect(client, group, topic_name)
            confirm(f"move group {group} of topic {topic_name} to {to}; {has}", place=where, yes=False)
        if is_shared:
            moves = _shared_moves(client, group, topic_name, place, dry_run=False)
            print_rows(moves, MOVE_COLUMNS, as_json=as_json)
            return
        offsets = client.groups.reset(group, topic_name, place)
    print_rows([offset._asdict() for offset in offsets], ("topic", "queue_id", "queue_offset", "lag"), as_json=as_json)


def _shares(group: ShareGroup | None, topic: str) -> bool:
    return group is not None and any(queue.topic == topic for queue in group.queues)


def _prospect(client: Client, group: str, topic: str) -> str:
    found = _offsets(client, [group], topic)
    return f"it has {many(len(found), 'offset')} there, {many(sum(one.lag for one in found), 'message')} behind"


def _shared_prospect(group: ShareGroup | None, topic: str) -> str:
    assert group is not None
    queues = [queue for queue in group.queues if queue.topic == topic]
    behind = sum(one.lag for one in queues)
    open_count = sum(one.in_flight_count + one.waiting_count + one.held_count for one in queues)
    return f"it is {many(behind, 'message')} behind, {many(open_count, 'message')} in flight count as settled"


def _shared_moves(
    client: Client, group: str, topic: str, place: Place, *, dry_run: bool = True
) -> list[dict[str, object]]:
    moves = client.share_groups.reset(group, topic, place, dry_run=dry_run)
    return [{"topic": topic, **asdict(move)} for move in moves]


def _moves(client: Client, group: str, topic: str, place: Place) -> list[dict[str, object]]:
    """Return the moves that a group that keeps offsets would make: it gets a position in all queues of the topic."""
    before = {one.queue_id: one.queue_offset for one in _offsets(client, [group], topic)}
    return [
        {
            "topic": topic,
            "queue_id": queue.queue_id,
            "from_queue_offset": before.get(queue.queue_id),
            "to_queue_offset": _offset_at(client, queue, place),
            "settled_count": 0,
        }
        for queue in client.queues.list(topic)
    ]


def _offset_at(client: Client, queue: Queue, place: Place) -> int:
    if isinstance(place, str):
        return queue.min_queue_offset if place == "earliest" else queue.max_queue_offset
    return client.queues.offset_by_time(queue.topic, queue.queue_id, place)


@groups.command("delete")
def delete_groups(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of groups.")],
    topic_name: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Only the offsets of this topic.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Delete also groups whose members receive.")] = False,
    yes: Yes = False,
    as_json: JsonOption = False,
) -> None:
    """Delete groups: their offsets, and the whole state of groups that share messages. Exit code 3 if any is not known.

    The other groups are deleted all the same. It asks first, and says how much it would delete. If members of a group
    received within the last 30 s, it deletes nothing, with exit code 5: a member that continues would make the group
    anew, with the default policy, and messages would be delivered again. End the members before, or give --force.
    Dead letters stay, and may be replayed again.

    Example: reput groups delete readers --topic orders --yes
    """
    with client_of(context, "indexer") as client:
        shared_groups = [] if topic_name else [find_sharing(context, client, name) for name in names]
        sharing = [group.name for group in shared_groups if group is not None]
        received = [group.name for group in shared_groups if group is not None and group.filters]
        if received and not force:
            raise CommandFailed("GROUP_IN_USE", _in_use(received), code=ExitCode.REFUSED)
        found = _offsets(client, names, topic_name)
        if not yes and (found or sharing):
            of_topic = f" of topic {topic_name}" if topic_name else ""
            shared = f", and what {', '.join(sharing)} shares" if sharing else ""
            live = f"; members of {', '.join(received)} receive and would make it anew" if received else ""
            what = f"forget {many(len(found), 'offset')}{of_topic} of {', '.join(names)}{shared}{live}"
            confirm(what, place=place_of(context.find_root().obj, "indexer"), yes=False)
        for name in sharing:
            client.share_groups.delete(name)
        rows = [{"group": name, "deleted_offset_count": client.groups.delete(name, topic=topic_name)} for name in names]
    print_rows(rows, ("group", "deleted_offset_count"), as_json=as_json)
    unknown = [str(row["group"]) for row in rows if not row["deleted_offset_count"] and row["group"] not in sharing]
    if unknown:
        raise CommandFailed("NO_OFFSETS", f"no offsets of {', '.join(unknown)}", code=ExitCode.NOT_FOUND)


def _in_use(names: Sequence[str]) -> str:
    text = f"members of {', '.join(names)} receive and would make it anew, with the default policy"
    return f"{text}: end them and wait for 30 s, or repeat the command with --force"


def _offsets(client: Client, groups_named: Sequence[str], topic_name: str) -> list[ConsumerOffset]:
    """Return the offsets that these groups have, all or only a topic's."""
    return [
        offset
        for group in client.groups.list()
        if group.name in groups_named
        for offset in group.offsets
        if topic_name in ("", offset.topic)
    ]
