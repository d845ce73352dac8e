# SPDX-License-Identifier: Apache-2.0
"""Message: a message with its properties and body, the calls that read it, and its state at each group."""

import json
from collections.abc import Iterable
from typing import ClassVar, Literal

from msgspec import Struct
from reput_client import Message

from services.console.pages.body import Body, body_of
from services.console.pages.groups import GroupFacts, GroupQueue
from services.console.pages.page import Gap, Page, command
from services.console.pages.rows import MessageRow, row_of

MEANINGS = {
    "TAGS": "tag",
    "KEYS": "keys, with spaces between",
    "UNIQ_KEY": "unique id",
    "DELAY": "delay level",
    "WAIT": "waited for the store",
    "RETRY_TOPIC": "topic of the first delivery",
    "RECONSUME_TIME": "times that consumers sent it back",
    "REAL_TOPIC": "topic of a delayed message or a transaction",
    "REAL_QID": "queue of a delayed message or a transaction",
    "TRAN_MSG": "half of a transaction",
    "PGROUP": "group of the producer",
    "TIMER_DELIVER_MS": "time of delivery",
    "TIMER_OUT_MS": "time of delivery",
    "__SHARDINGKEY": "ordering key",
    "ORIGIN_MESSAGE_ID": "id of the message that died or was retried",
    "DLQ_ORIGIN_TOPIC": "topic of the message that died",
    "DLQ_ORIGIN_MESSAGE_ID": "id of the message that died",
    "CONSUME_START_TIME": "start of its processing",
}
"""What properties of RocketMQ mean."""
PROPERTIES_SHOWN_MAX = 200
VALUE_CHARACTERS_MAX = 2_000

State = Literal["settled", "open", "not_delivered", "read", "not_read"]


class Property(Struct, frozen=True):
    """A property. A long value is cut."""

    name: str
    value: str
    meaning: str
    is_cut: bool


class GroupState(Struct, frozen=True):
    """The state of the message at a group."""

    group: str
    is_shared: bool
    state: State
    behind: int
    """Messages between the group's position and this message."""


class Call(Struct, frozen=True):
    """A call that reads the message."""

    name: str
    text: str


class MessagePage(Page, frozen=True, kw_only=True):
    """A message."""

    template: ClassVar = "message.html"

    id: str
    row: MessageRow | None = None
    physical_offset: int = 0
    record_size_bytes: int = 0
    born_time_ms: int = 0
    born_host: str = ""
    store_host: str = ""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    properties: tuple[Property, ...] = ()
    property_count: int = 0
    body: Body | None = None
    calls: tuple[Call, ...] = ()
    states: tuple[GroupState, ...] = ()


def page_of(
    message_id: str,
    message: Message | None,
    groups: Iterable[GroupFacts],
    gaps: tuple[Gap, ...],
    *,
    form: str,
    hides_bodies: bool,
) -> MessagePage:
    """Return the page of a message, None if it was not found."""
    commands = (command("query", "id", message_id),)
    if message is None:
        return MessagePage(commands=commands, gaps=gaps, is_found=False, id=message_id)
    return MessagePage(
        commands=commands,
        gaps=gaps,
        id=message_id,
        row=row_of(message, hides_bodies=hides_bodies),
        physical_offset=message.physical_offset,
        record_size_bytes=message.record_size_bytes,
        born_time_ms=message.born_time_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        properties=_properties(message),
        property_count=len(message.properties),
        body=body_of(message, form, hides=hides_bodies),
        calls=_calls(message),
        states=states_of(message.topic, message.queue_id, message.queue_offset, groups),
    )


def _properties(message: Message) -> tuple[Property, ...]:
    """Return the properties: the properties of users first, then those of RocketMQ, by name."""
    pairs = sorted(message.properties.items(), key=lambda pair: (pair[0] in MEANINGS, pair[0]))
    return tuple(
        Property(name, value[:VALUE_CHARACTERS_MAX], MEANINGS.get(name, ""), len(value) > VALUE_CHARACTERS_MAX)
        for name, value in pairs[:PROPERTIES_SHOWN_MAX]
    )


def states_of(topic: str, queue_id: int, queue_offset: int, groups: Iterable[GroupFacts]) -> tuple[GroupState, ...]:
    """Return the state of a message at each group that has a position in its queue."""
    found = []
    for group in groups:
        for queue in group.queues:
            if (queue.topic, queue.queue_id) == (topic, queue_id):
                behind = max(queue_offset - queue.queue_offset, 0)
                found.append(GroupState(group.name, group.share is not None, _state(queue, queue_offset), behind))
    return tuple(found)


def _state(queue: GroupQueue, queue_offset: int) -> State:
    """Return the state. Between the first open message and the first that was not delivered any state is possible."""
    if queue.next_queue_offset is None:
        return "read" if queue_offset < queue.queue_offset else "not_read"
    if queue_offset < queue.queue_offset:
        return "settled"
    return "open" if queue_offset < queue.next_queue_offset else "not_delivered"


def _calls(message: Message) -> tuple[Call, ...]:
    topic, queue_id, offset = message.topic, message.queue_id, message.queue_offset
    at, end = ({topic: {str(queue_id): place}} for place in (offset, offset + 1))
    python = (
        "import reput_client\n\n"
        "with reput_client.connect() as client:\n"
        f"    message = client.query.by_id({message.offset_message_id!r})\n"
        "    print(message.properties, message.body)"
    )
    spark = (
        'frame = (\n    spark.read.format("reput")\n    .option("endpoint", "127.0.0.1:7102")  # the Indexer\n'
        f"    .option(\"assign\", '{json.dumps({topic: [queue_id]})}')\n"
        f"    .option(\"startingOffsets\", '{json.dumps(at)}')\n"
        f"    .option(\"endingOffsets\", '{json.dumps(end)}')\n"
        "    .load()\n)"
    )
    return (
        Call("Command line", command("query", "id", message.offset_message_id)),
        Call("Python", python),
        Call("Spark", spark),
    )
