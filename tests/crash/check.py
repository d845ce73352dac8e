# SPDX-License-Identifier: Apache-2.0
"""Checks of a store after a fault: the promises, compared with the history of messages and answers.

`settle` looks at the log. Each acknowledged message is there once, at the place of the answer, with all its fields. A
message that was refused, or given up at an earlier check, is not there, and neither is a message that was not sent.
Queue offsets have no gaps, and each caller's messages follow each other in each queue. Messages that readers have seen
stay. A delayed message is in the schedule topic, once, and once at most in its own, behind it.
`check_indexes` looks at the Indexer's files: units are the units of the records, and all is as a clean rebuild makes
it. Callers: a single event loop, while no caller appends.
Each check returns the faults, in words; nothing is raised for them.
"""

import asyncio
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import grpc
import numpy as np
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import query_service_pb2 as query_pb

from libs.formats.indexes.consume_queue import UNIT, UNIT_SIZE_BYTES
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import DELIVERY_TOPIC, STATE_TOPIC
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from services.indexer.engine.offline_rebuild import rebuild
from tests.crash.delayed import check_copies, check_file
from tests.crash.history import BORN_HOST, DELAY, KEYS, UNIQUE_KEY, History, Sent, State
from tests.crash.index_contents import differences
from tests.crash.live_store import CommitLogStubs, IndexerStubs, LiveStore

CATCH_UP_TIMEOUT_S = 20.0
CATCH_UP_LOOK_S = 0.005
LOOKUP_COUNT = 6
SHOWN_COUNT = 5
STORE_PROPERTIES = frozenset({"__CRC32#", "REPUT_WRITER"})
"""Properties that the store itself adds to a record."""
STATES = frozenset({DELIVERY_TOPIC, STATE_TOPIC})
"""Topics of the services' own state, to which no caller of the history appends."""
SHARED_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where a rebuild costs no sync."""


async def read_log(log: CommitLogStubs, start_physical_offset: int) -> list[StoredMessage]:
    """All messages from there on that may be read, in the order of the log."""
    request = log_pb.StreamRecordsRequest(start_physical_offset=start_physical_offset)
    return [message async for step in log.log.StreamRecords(request) for message in step.messages]


def settle(
    history: History, messages: Sequence[StoredMessage], *, min_physical_offset: int, end_physical_offset: int
) -> list[str]:
    """Compare the log with the history. Then settle open and weak messages by the messages that were found.

    The log has [min, end) and these messages. Weak acknowledgements may be lost, but then at the end only.
    """
    wrong: list[str] = []
    found: dict[int, StoredMessage] = {}
    copies: set[int] = set()
    for message in messages:
        if message.topic in STATES:
            continue
        sent = history.messages.get(message.flag)
        place = f"the record at {message.physical_offset}"
        if sent is None:
            wrong.append(f"{place} was never sent: {_short(message)}")
            continue
        is_copy = sent.is_delayed and message.topic == sent.topic
        if message.flag in found and not is_copy:
            wrong.append(f"message {sent.number} is there twice, at {found[message.flag].physical_offset} and {place}")
        elif sent.state in (State.REFUSED, State.GONE):
            wrong.append(f"{place} is message {sent.number}, which is {sent.state.value}")
        else:
            wrong += [f"{place}, message {sent.number}: {difference}" for difference in _compare(sent, message)]
        if not is_copy:
            found[message.flag] = message
        elif sent.copy_physical_offset not in (-1, message.physical_offset):
            wrong.append(f"message {sent.number} is delivered twice, at {sent.copy_physical_offset} and {place}")
        elif message.flag in found or sent.physical_offset < min_physical_offset:
            sent.state, sent.copy_physical_offset = State.STORED, message.physical_offset
            copies.add(message.flag)
        else:
            wrong.append(f"{place} delivers message {sent.number}, which is nowhere before it")
    wrong += [
        f"message {sent.number} was delivered at {sent.copy_physical_offset} and is not there any more"
        for sent in history.messages.values()
        if sent.copy_physical_offset >= min_physical_offset and sent.number not in copies
    ]
    wrong += _settle_stored(history, found, min_physical_offset, end_physical_offset)
    wrong += _settle_open(history, found)
    wrong += _check_seen(history, messages, min_physical_offset)
    wrong += _check_queues(history, messages)
    return wrong


async def check_live(store: LiveStore, history: History, chance: random.Random) -> list[str]:
    """All checks of a store whose CommitLog and Indexer serve. Waits until the Indexer has caught up."""
    log = store.commitlog()
    status = await log.log.GetStatus(log_pb.GetStatusRequest())
    wrong = settle(
        history,
        await read_log(log, status.min_physical_offset),
        min_physical_offset=status.min_physical_offset,
        end_physical_offset=status.max_physical_offset,
    )
    while True:
        end, missing = await wait_caught_up(log, store.indexer())
        if missing:
            return [*wrong, missing]
        found = await check_entered(store, history, chance, end_physical_offset=end)
        now = await log.log.GetStatus(log_pb.GetStatusRequest())
        if now.max_physical_offset == end:  # or the Indexer has appended changes of its own state meanwhile
            return wrong + found


async def check_entered(
    store: LiveStore, history: History, chance: random.Random, *, end_physical_offset: int
) -> list[str]:
    """The checks of delayed messages and of the Indexer, which has entered all of the log."""
    log = store.commitlog()
    status = await log.log.GetStatus(log_pb.GetStatusRequest())
    messages = await read_log(log, status.min_physical_offset)
    first = status.min_physical_offset + store.trimmed_ahead_bytes
    wrong = check_copies(history, messages, min_physical_offset=first)
    wrong += check_file(store.data_dir, history, min_physical_offset=first)
    wrong += await check_lookups(store.indexer(), history, chance, min_physical_offset=first)
    wrong += await check_indexes(store, messages, min_physical_offset=first, end_physical_offset=end_physical_offset)
    return wrong


async def wait_caught_up(log: CommitLogStubs, index: IndexerStubs) -> tuple[int, str]:
    """Wait until the Indexer has entered all of the log. Returns its end, and the reason if it has not, else empty."""
    status, end = index_pb.GetStatusResponse(), 0
    try:
        async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
            while status.state != index_pb.REPUT_STATE_STOPPED:
                end = (await log.log.GetStatus(log_pb.GetStatusRequest())).confirmed_physical_offset
                status = await index.index.GetStatus(index_pb.GetStatusRequest())
                if status.state == index_pb.REPUT_STATE_LIVE and status.indexed_physical_offset == end:
                    return end, ""
                await asyncio.sleep(CATCH_UP_LOOK_S)
    except TimeoutError:
        pass
    return end, (
        f"the Indexer did not come to {end}: it is at {status.indexed_physical_offset} in state "
        f"{index_pb.ReputState.Name(status.state)}, its last error was {status.last_error!r}"
    )


async def check_lookups(
    index: IndexerStubs, history: History, chance: random.Random, *, min_physical_offset: int
) -> list[str]:
    """Look up some keys and compare with all messages that have them."""
    wrong: list[str] = []
    kept = [one for one in history.stored() if one.physical_offset >= min_physical_offset and not one.is_delayed]
    keyed = [sent for sent in kept if keys_of(sent)]
    for asked in chance.sample(keyed, min(LOOKUP_COUNT, len(keyed))):
        key = chance.choice(keys_of(asked))
        found: list[int] = []
        token = ""
        while True:
            request = query_pb.QueryByKeyRequest(topic=asked.topic, key=key, page_size=200, page_token=token)
            try:
                page = await index.queries.QueryByKey(request)
            except grpc.aio.AioRpcError as error:
                return [f"looking up {key!r} in {asked.topic} failed: {error.details()}"]
            found += [
                one.flag
                for one in page.messages
                if one.physical_offset >= min_physical_offset and not history.messages[one.flag].is_delayed
            ]
            if not (token := page.next_page_token):
                break
        having = [sent for sent in kept if sent.topic == asked.topic and key in keys_of(sent)]
        expected = [sent.number for sent in sorted(having, key=lambda sent: -sent.physical_offset)]
        if found != expected:
            wrong.append(f"key {key!r} in {asked.topic}: found {found}, expected {expected}")
    return wrong


async def check_indexes(
    store: LiveStore, messages: Sequence[StoredMessage], *, min_physical_offset: int, end_physical_offset: int
) -> list[str]:
    """Compare the Indexer's files, with all of the log entered, with the messages and with the files of a rebuild."""
    wrong = check_units(
        store.data_dir / "consumequeue", [one for one in messages if one.physical_offset >= min_physical_offset]
    )
    scratch = Path(tempfile.mkdtemp(prefix="reput-rebuild-", dir=SHARED_MEMORY))
    try:
        await rebuild(
            PosixFs(),
            store.sizes.indexer_config(scratch),
            log_data_dir=store.data_dir,
            segment_size_bytes=store.sizes.segment_size_bytes,
            clock=SystemClock(),
            end_physical_offset=end_physical_offset,
        )
        found = differences(
            PosixFs(),
            store.data_dir,
            scratch,
            index_slot_count=store.sizes.index_slot_count,
            min_physical_offset=min_physical_offset,
        )
        wrong += [f"compared with a rebuild: {what}" for what in found]
    finally:
        shutil.rmtree(scratch)
    return wrong


def check_units(directory: Path, messages: Sequence[StoredMessage]) -> list[str]:
    """Compare all units of all queues with the records, by the bytes of the files."""
    wrong: list[str] = []
    expected: dict[tuple[str, int], list[StoredMessage]] = defaultdict(list)
    for message in messages:
        expected[message.topic, message.queue_id].append(message)
    for (topic, queue_id), records in expected.items():
        files = sorted((directory / topic / str(queue_id)).glob("[0-9]" * 20))
        first = int(files[0].name) // UNIT_SIZE_BYTES if files else 0
        units = np.frombuffer(b"".join(file.read_bytes() for file in files), UNIT)[records[0].queue_offset - first :]
        ends = len(records)
        if (
            units["physical_offset"][:ends].tolist() != [record.physical_offset for record in records]
            or units["record_size_bytes"][:ends].tolist() != [record.record_size_bytes for record in records]
            or units[ends:].tobytes().strip(b"\0")
        ):
            wrong.append(f"queue {topic}/{queue_id}: its units are not those of its {len(records)} records")
    return wrong


def keys_of(sent: Sent) -> list[str]:
    """The keys of a message that the index has."""
    unique = [sent.properties[UNIQUE_KEY]] if UNIQUE_KEY in sent.properties else []
    return unique + sent.properties.get(KEYS, "").split()


def shorten(wrong: Sequence[str]) -> str:
    """The first few of many complaints, each in a line."""
    rest = [f"and {len(wrong) - SHOWN_COUNT} more"] if len(wrong) > SHOWN_COUNT else []
    return "\n".join([*wrong[:SHOWN_COUNT], *rest])


def _settle_stored(history: History, found: dict[int, StoredMessage], first: int, end: int) -> list[str]:
    wrong = []
    for sent in history.stored():
        message = found.get(sent.number)
        if message is None and sent.is_weak and sent.physical_offset >= end:
            sent.state = State.GONE
            history.forgiven_count += 1
        elif message is None and sent.physical_offset >= first:
            wrong.append(f"message {sent.number} was acknowledged at {sent.physical_offset} and is not there")
        sent.is_weak = False
    return wrong


def _settle_open(history: History, found: dict[int, StoredMessage]) -> list[str]:
    """Settle batches without an answer: nothing of them is there, or their first messages without a gap."""
    wrong = []
    for batch in history.open_batches:
        here = [found[sent.number] for sent in batch.messages if sent.number in found]
        numbers = [sent.number for sent in batch.messages]
        ends = [message.physical_offset + message.record_size_bytes for message in here]
        is_prefix = [message.flag for message in here] == numbers[: len(here)]
        if not is_prefix or [message.physical_offset for message in here[1:]] != ends[:-1]:
            wrong.append(f"of the batch {numbers} there is {[(m.flag, m.physical_offset) for m in here]}")
        for sent in batch.messages:
            message = found.get(sent.number)
            if message is not None:
                sent.state = State.STORED
                sent.physical_offset, sent.queue_offset = message.physical_offset, message.queue_offset
                sent.queue_id = sent.queue_id if sent.is_delayed else message.queue_id
            elif sent.copy_physical_offset < 0:
                sent.state = State.GONE
    history.open_batches.clear()
    return wrong


def _check_seen(history: History, messages: Iterable[StoredMessage], first: int) -> list[str]:
    numbers = {message.physical_offset: message.flag for message in messages}
    gone = [
        f"message {number} was seen at {physical_offset} and is not there any more"
        for physical_offset, number in history.seen.items()
        if physical_offset >= first and numbers.get(physical_offset) != number
    ]
    history.seen.clear()
    return gone


def _check_queues(history: History, messages: Iterable[StoredMessage]) -> list[str]:
    """Queue offsets without gaps, and each caller's messages in the order in which it sent them."""
    wrong = []
    next_offsets: dict[tuple[str, int], int] = {}
    sequences: dict[tuple[str, int, int], int] = {}
    for message in messages:
        queue = message.topic, message.queue_id
        expected = next_offsets.get(queue, message.queue_offset)
        if message.queue_offset != expected:
            wrong.append(f"queue {queue}: {message.queue_offset} follows where {expected} should, {_short(message)}")
        next_offsets[queue] = message.queue_offset + 1
        sent = history.messages.get(message.flag)
        if sent is not None and not sent.is_delayed:
            if sent.sequence <= sequences.get((*queue, sent.caller), -1):
                wrong.append(f"queue {queue}: message {sent.number} of caller {sent.caller} comes too late")
            sequences[*queue, sent.caller] = sent.sequence
    return wrong


def _compare(sent: Sent, message: StoredMessage) -> list[str]:
    """The differences between a record, or its delivered copy, and the message that was sent and its answer."""
    properties = {name: value for name, value in message.properties.items() if name not in STORE_PROPERTIES}
    wanted, is_waiting = dict(sent.properties), message.topic == SCHEDULE_TOPIC
    if is_waiting and sent.is_delayed:
        wanted |= {"REAL_TOPIC": sent.topic, "REAL_QID": properties.get("REAL_QID", "none")}
    else:
        wanted.pop(DELAY, None)
    pairs = [
        ("topic", SCHEDULE_TOPIC if is_waiting and sent.is_delayed else sent.topic, message.topic),
        ("body", sent.body, message.body),
        ("properties", wanted, properties),
        ("born_time_ms", sent.born_time_ms, message.born_time_ms),
        ("born_host", BORN_HOST if sent.names_host else message.born_host, message.born_host),
    ]
    if is_waiting:
        pairs.append(("queue_id", int(sent.properties.get(DELAY, 0)) - 1, message.queue_id))
    elif sent.queue_id >= 0:
        pairs.append(("queue_id", sent.queue_id, message.queue_id))
    if sent.state is State.STORED and sent.is_delayed == is_waiting:
        pairs.append(("physical_offset", sent.physical_offset, message.physical_offset))
        pairs.append(("queue_offset", sent.queue_offset, message.queue_offset))
    return [f"{name} is {got!r:.200}, not {want!r:.200}" for name, want, got in pairs if want != got]


def _short(message: StoredMessage) -> str:
    return f"flag {message.flag}, topic {message.topic!r}, queue {message.queue_id}, entry {message.queue_offset}"
