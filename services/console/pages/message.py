# SPDX-License-Identifier: Apache-2.0
"""Message: a message with its properties and body, the calls that read it, and its state at each group."""

import json
from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct
from reput_client import Message

from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from services.console.pages.body import Body, body_of
from services.console.pages.groups import GroupFacts, GroupQueue
from services.console.pages.mask import Mask
from services.console.pages.page import Gap, Page, command
from services.console.pages.rows import MessageRow, WaitsAs, row_of
from services.console.pages.states import GroupState, State

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
"""The meanings of RocketMQ's properties."""
PROPERTIES_SHOWN_MAX = 200
VALUE_CHARACTERS_MAX = 2_000
COMMANDS_MAX = 3
"""Groups for which the page names the command that tells the state of the message."""

WAITING: dict[str, WaitsAs] = {TIMER_TOPIC: "delayed", HALF_TOPIC: "transaction"}


class Property(Struct, frozen=True):
    """A property. A long value is cut."""

    name: str
    value: str
    meaning: str
    is_cut: bool


class Call(Struct, frozen=True):
    """A call that reads the message."""

    name: str
    text: str


class MessagePage(Page, frozen=True, kw_only=True):
    """A message."""

    template: ClassVar = "message.html"

    id: str
    refusal: str = ""
    """Why this is no id of a message."""
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
    waits_as: WaitsAs = ""
    """The kind of its wait, where the store keeps messages that no group gets yet."""
    real_topic: str = ""
    """The topic to which such a message goes; empty for a message without it."""


def page_of(
    message_id: str,
    message: Message | None,
    states: tuple[GroupState, ...],
    gaps: tuple[Gap, ...],
    *,
    indexer_target: str,
    form: str,
    mask: Mask,
    body_start: int = 0,
    refusal: str = "",
) -> MessagePage:
    """Return the page of a message, None if it was not found, or if its id is refused."""
    commands = (command("query", "id", message_id),)
    if message is None:
        return MessagePage(commands=commands, gaps=gaps, is_found=False, id=message_id, refusal=refusal)
    place = (message.topic, "--queue", str(message.queue_id), "--offset", str(message.queue_offset))
    shared = [one.group for one in states if one.is_shared]
    return MessagePage(
        commands=(*commands, *(command("groups", "message", group, *place) for group in shared[:COMMANDS_MAX])),
        gaps=gaps,
        id=message_id,
        row=row_of(message, mask),
        physical_offset=message.physical_offset,
        record_size_bytes=message.record_size_bytes,
        born_time_ms=message.born_time_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        properties=_properties(message, mask),
        property_count=len(message.properties),
        body=body_of(message, form, mask, start=body_start),
        calls=_calls(message, indexer_target),
        waits_as=WAITING.get(message.topic, ""),
        real_topic=mask.value("REAL_TOPIC", message.properties.get("REAL_TOPIC", "")),
        states=states,
    )


def _properties(message: Message, mask: Mask) -> tuple[Property, ...]:
    """Return the properties: the properties of users first, then RocketMQ's own, by name."""
    pairs = [(name, mask.value(name, value)) for name, value in message.properties.items()]
    pairs.sort(key=lambda pair: (pair[0] in MEANINGS, pair[0]))
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
                state = _state(queue, queue_offset)
                is_first = state == "open" and queue_offset == queue.queue_offset
                caused = tuple(one.text for one in queue.reasons if one.queue_offset == queue_offset)
                most = group.share.policy.attempts_max if group.share is not None else 0
                found.append(
                    GroupState(group.name, group.share is not None, state, behind, is_first, caused, attempts_max=most)
                )
    return tuple(found)


def _state(queue: GroupQueue, queue_offset: int) -> State:
    """Return the state. Between the first open message and the first that was not delivered any state is possible."""
    if queue.next_queue_offset is None:
        return "read" if queue_offset < queue.queue_offset else "not_read"
    if queue_offset < queue.queue_offset:
        return "settled"
    return "open" if queue_offset < queue.next_queue_offset else "not_delivered"


def _calls(message: Message, indexer_target: str) -> tuple[Call, ...]:
    topic, queue_id, offset = message.topic, message.queue_id, message.queue_offset
    at, end = ({topic: {str(queue_id): place}} for place in (offset, offset + 1))
    python = (
        "import reput_client\n\n"
        f"with reput_client.connect(indexer={indexer_target!r}) as client:\n"
        f"    message = client.query.by_id({message.offset_message_id!r})\n"
        "    print(message.properties, message.body)"
    )
    spark = (
        'frame = (\n    spark.read.format("reput")\n'
        f'    .option("endpoint", {json.dumps(indexer_target)})\n'
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
