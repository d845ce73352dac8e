# SPDX-License-Identifier: Apache-2.0
"""Golden queue, index, checkpoint, epoch and config bytes, in both directions."""

import struct
from array import array

import msgspec
import pytest

from libs.formats.config import (
    consumer_offsets_json,
    delay_offsets_json,
    subscription_groups_json,
    timer_checkpoint,
    topics_json,
)
from libs.formats.config.config_json import DataVersion
from libs.formats.config.consumer_offsets_json import ConsumerOffsetsFile
from libs.formats.config.delay_offsets_json import DelayOffsetsFile
from libs.formats.config.subscription_groups_json import SubscriptionGroup, SubscriptionGroupsFile, customized
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.epoch import Epoch
from libs.formats.errors import BadField, NewerVersion
from libs.formats.indexes import batch_consume_queue, consume_queue, consume_queue_ext, index_file
from libs.formats.indexes.batch_consume_queue import BatchConsumeQueueUnit
from libs.formats.indexes.consume_queue import ConsumeQueueUnit
from libs.formats.indexes.index_file import IndexEntry, IndexHeader
from libs.formats.records import record
from libs.formats.records.state_record import CopyPart, DelayProgress, StateRecord
from libs.formats.state import checksummed, epoch_file, index_filter, store_checkpoint, topic_journal
from libs.formats.state.index_filter import FilterHeader
from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.log_history import LogHistoryFile, QueueEnd, TopicBeginsFile
from libs.formats.state.replication import (
    InSyncFile,
    Member,
    ReplicaFile,
    RoleSetting,
    SharedStateFile,
    UnsentOffsetsFile,
)
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.formats.state.topic_journal import TopicChange
from libs.kernel.scan.filter_cy import fill_filter, seal_filter
from libs.kernel.scan.index_cy import put_index_entries
from tests.support import reference
from tests.support.golden import golden

STORE_TIME_MS = 1_700_000_000_123
PHYSICAL_OFFSET = 1_073_742_048
LATER_PHYSICAL_OFFSET = PHYSICAL_OFFSET + 205


def test_consume_queue_units() -> None:
    """The golden units are a message, a pre-blank and a negative tag hash."""
    data = golden("consume_queue/v1/units.hex")
    units = [consume_queue.decode_unit(data, position) for position in (0, 20, 40)]
    assert units == [
        ConsumeQueueUnit(PHYSICAL_OFFSET, 205, 2_598_919),
        ConsumeQueueUnit(0, 2**31 - 1, 0),
        ConsumeQueueUnit(0, 300, -516_329_062),
    ]
    assert [unit.is_pre_blank for unit in units] == [False, True, False]
    assert all(unit.is_valid for unit in units)
    written = (
        reference.queue_unit(PHYSICAL_OFFSET, 205, consume_queue.tags_code("TagA"))
        + consume_queue.PRE_BLANK * 1
        + reference.queue_unit(0, 300, consume_queue.tags_code("shipment"))
    )
    assert written == data


def test_delayed_unit() -> None:
    """The unit of the delayed record has the delivery time in place of the tag's hash."""
    data = golden("consume_queue/v1/delayed_unit.hex")
    delayed = record.decode(golden("commit_log/v1/delayed_record.hex"))
    code = reference.record_tags_code(delayed)
    assert code == STORE_TIME_MS + 10_000
    assert reference.queue_unit(0, delayed.size_bytes, code) == data
    assert consume_queue.decode_unit(data) == (0, 165, code)


def test_batch_unit() -> None:
    """A batch consume queue unit of five messages."""
    data = golden("consume_queue/v1/batch_unit.hex")
    unit = BatchConsumeQueueUnit(4096, 700, 2_598_919, STORE_TIME_MS, 100, 5)
    assert batch_consume_queue.decode_unit(data) == unit
    assert reference.batch_queue_unit(unit) == data
    assert unit.is_valid


def test_extension_unit_and_address() -> None:
    """An extension unit with its bitmap, and the address that points to it."""
    data = golden("consume_queue/v1/extension_unit.hex")
    assert consume_queue_ext.decode_unit(data) == (2_598_919, STORE_TIME_MS, bytes(8))
    assert reference.extension_unit(2_598_919, STORE_TIME_MS, bytes(8)) == data
    address = struct.unpack(">q", golden("consume_queue/v1/extension_address.hex"))[0]
    assert consume_queue_ext.is_address(address)
    assert reference.extension_address(0) == address


def test_index_after_the_first_record() -> None:
    """Header and both entries, at the positions of a file of RocketMQ's size."""
    data = golden("index_file/v1/first_record.hex")
    header = IndexHeader(STORE_TIME_MS, STORE_TIME_MS, PHYSICAL_OFFSET, PHYSICAL_OFFSET, 2, 3)
    entries = [IndexEntry(1_895_470_262, PHYSICAL_OFFSET, 0, 0), IndexEntry(1_043_804_929, PHYSICAL_OFFSET, 0, 0)]
    assert index_file.decode_header(data) == header
    assert header.entry_count == 2
    assert [index_file.decode_entry(data, position) for position in (40, 60)] == entries
    assert reference.index_header(header) + b"".join(map(reference.index_entry, entries)) == data
    assert [index_file.entry_position(n, 5_000_000) for n in (1, 2, 3)] == [20_000_060, 20_000_080, 20_000_100]


def test_index_after_a_later_message() -> None:
    """The second entry of a bucket points to the first, and its time difference is in whole seconds."""
    data = golden("index_file/v1/later_message.hex")
    store_time_ms = STORE_TIME_MS + 5900
    header = IndexHeader(STORE_TIME_MS, store_time_ms, PHYSICAL_OFFSET, LATER_PHYSICAL_OFFSET, 2, 4)
    difference_s = index_file.time_difference_s(store_time_ms, STORE_TIME_MS)
    entry = IndexEntry(index_file.key_hash("TopicTest#order-1001"), LATER_PHYSICAL_OFFSET, difference_s, 2)
    assert index_file.decode_header(data) == header
    assert index_file.decode_entry(data, 40) == entry
    assert reference.index_header(header) + reference.index_entry(entry) == data


def test_first_entry_of_a_successor_file() -> None:
    """RocketMQ's time difference of 42 seconds against the previous file is read unchanged."""
    data = golden("index_file/v1/successor_entry.hex")
    entry = IndexEntry(1_043_804_929, LATER_PHYSICAL_OFFSET, 42, 0)
    assert index_file.decode_entry(data, 0) == entry
    assert reference.index_entry(entry) == data


def test_checkpoints() -> None:
    """A checkpoint has three fields in 4.x and five since 5.1.1, and the rest of the page is zero."""
    old = StoreCheckpoint(STORE_TIME_MS, 1_699_999_999_623, 0)
    new = StoreCheckpoint(STORE_TIME_MS, 1_699_999_999_623, 0, 0, PHYSICAL_OFFSET)
    for name, checkpoint in {"version_4": old, "version_5": new}.items():
        data = golden(f"store_checkpoint/v1/{name}.hex").ljust(4096, b"\0")
        assert store_checkpoint.decode(data) == checkpoint
        assert store_checkpoint.encode(checkpoint) == data
    assert new.min_time_ms == 1_699_999_996_623


def test_epoch_file() -> None:
    """Two epochs are read and written with RocketMQ's own checksum."""
    data = golden("epoch_file/v1/two_epochs.hex")
    assert epoch_file.decode(data) == [Epoch(7, 7000), Epoch(8, 8000)]
    assert epoch_file.encode([Epoch(7, 7000), Epoch(8, 8000)]) == data


def test_envelope_of_our_own_files() -> None:
    """Kind and payload of a checksummed file."""
    data = golden("reput_files/v1/envelope.hex")
    assert checksummed.unwrap("index_progress", data) == b'{"a":1}'
    assert checksummed.wrap("index_progress", b'{"a":1}') == data


def test_consumer_offsets() -> None:
    """consumerOffset.json is written with unquoted queue ids, and a file with quoted queue ids reads the same."""
    text = golden("config_files/v1/consumerOffset.json").decode()
    offsets = {("TopicTest", "GroupA"): {0: 5, 1: 7}, ("%RETRY%GroupA", "GroupA"): {0: 0}}
    file = ConsumerOffsetsFile(offsets, DataVersion(3, STORE_TIME_MS))
    assert consumer_offsets_json.loads(text) == file
    assert consumer_offsets_json.dumps(file) == text
    assert consumer_offsets_json.loads(text.replace("0:", '"0":').replace("1:7", '"1" : 7')) == file


def test_delay_offsets() -> None:
    """delayOffset.json is written with unquoted levels, ascending, and a file with quoted levels reads the same."""
    text = golden("config_files/v1/delayOffset.json").decode()
    file = DelayOffsetsFile({1: 3, 18: 0, 3: STORE_TIME_MS}, DataVersion(12, STORE_TIME_MS))
    assert delay_offsets_json.loads(text) == file
    assert delay_offsets_json.dumps(file) == text
    assert delay_offsets_json.loads(text.replace("18:0", '"18" : 0')) == file
    assert delay_offsets_json.loads('{"offsetTable":{2:1}}') == DelayOffsetsFile({2: 1}, None)
    for table in ("{0:1}", "{2147483648:1}", '{"a":1}', "{1:-1}", '{1:"1"}', "[]", "1"):
        with pytest.raises(BadField):
            delay_offsets_json.loads(f'{{"offsetTable":{table}}}')


def test_timer_checkpoint() -> None:
    """The file has the queue offset from which RocketMQ continues in its timer topic."""
    data = golden("config_files/v1/timercheck.hex").ljust(timer_checkpoint.SIZE_BYTES, b"\0")
    assert timer_checkpoint.encode(42, STORE_TIME_MS) == data


def test_subscription_groups() -> None:
    """subscriptionGroup.json is written as RocketMQ 5.3.3 writes it, and fields without a meaning here are kept."""
    text = golden("config_files/v1/subscriptionGroup.json").decode()
    file = subscription_groups_json.loads(text)
    assert file.data_version == DataVersion(0, STORE_TIME_MS)
    assert file.groups["billing"] == SubscriptionGroup()
    mail = SubscriptionGroup(
        is_enabled=False, is_orderly=True, retry_count_max=4, retry_policy=customized((1_000, 5_000))
    )
    assert (file.groups["mail"].backoffs_ms, file.groups["mail"].retry_count_max) == ((1_000, 5_000), 4)
    assert file.groups["exp"].backoffs_ms == (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000)
    assert subscription_groups_json.dumps(file) == text
    again = subscription_groups_json.dumps(SubscriptionGroupsFile({**file.groups, "mail": mail}, file.data_version))
    assert again == text
    plain = subscription_groups_json.loads('{"subscriptionGroupTable":{"g":{"consumeEnable":false}}}')
    assert plain.groups["g"] == SubscriptionGroup(is_enabled=False, others={})
    assert (plain.data_version, plain.others) == (None, {})


@pytest.mark.parametrize(
    "group",
    [
        "[]",
        '{"groupName":"another"}',
        '{"consumeEnable":1}',
        '{"retryMaxTimes":-2}',
        '{"groupRetryPolicy":{"type":"RANDOM"}}',
        '{"groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":0}}}',
        '{"groupRetryPolicy":{"customizedRetryPolicy":{"next":1}}}',
        '{"groupRetryPolicy":{"customizedRetryPolicy":{"next":[-1]}}}',
    ],
)
def test_bad_subscription_groups(group: str) -> None:
    """A value that is not a valid group is refused."""
    with pytest.raises(BadField):
        subscription_groups_json.loads(f'{{"subscriptionGroupTable":{{"g":{group}}}}}')


def test_topics() -> None:
    """topics.json is read and written with every field."""
    text = golden("config_files/v1/topics.json").decode()
    schedule = TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18, 4, True, "MULTI_TAG", 1, {"+message.type": "DELAY"})
    topics = {"TopicTest": TopicConfig("TopicTest", 4, 4), "SCHEDULE_TOPIC_XXXX": schedule}
    file = TopicsFile(topics, DataVersion(2, STORE_TIME_MS))
    assert topics_json.loads(text) == file
    assert topics_json.dumps(file) == text
    assert (schedule.is_readable, schedule.is_writable) == (True, False)


LOG_HISTORY = (
    b'{"history_id":"0123","is_complete":false,"known_physical_offset":900,"ends":[["orders",3,17,800]],'
    b'"epochs":[[1,0],[4,512]],"topic_begins":{"orders":700}}'
)


def test_log_history() -> None:
    """The file keeps an Indexer's knowledge of the log, and a file from before epochs is read without epochs."""
    known = LogHistoryFile(
        history_id="0123",
        is_complete=False,
        known_physical_offset=900,
        ends=[QueueEnd("orders", 3, 17, 800)],
        epochs=[Epoch(1, 0), Epoch(4, 512)],
        topic_begins={"orders": 700},
    )
    assert checksummed.unwrap("log-history", known.encode()) == LOG_HISTORY
    assert LogHistoryFile.decode(checksummed.wrap("log-history", LOG_HISTORY)) == known
    older = LOG_HISTORY.replace(b',"epochs":[[1,0],[4,512]],"topic_begins":{"orders":700}', b"")
    without = msgspec.structs.replace(known, epochs=[], topic_begins={})
    assert LogHistoryFile.decode(checksummed.wrap("log-history", older)) == without


def test_topic_begins() -> None:
    """The file keeps where the messages of deleted topics begin, and a deletion that is under way."""
    file = TopicBeginsFile(begins={"orders": 700}, deleting="payments")
    data = b'{"begins":{"orders":700},"deleting":"payments"}'
    assert checksummed.unwrap("topic-begins", file.encode()) == data
    assert TopicBeginsFile.decode(checksummed.wrap("topic-begins", data)) == file
    with pytest.raises(NewerVersion):
        TopicBeginsFile.decode(checksummed.wrap("topic-begins", data, version=2))


def test_topic_journal() -> None:
    """The journal keeps changes of topics, each in an envelope of its own."""
    versions = [DataVersion(7, 1_700_000_000_000, 1), DataVersion(8, 1_700_000_000_001, 1), DataVersion(9, 2, 1)]
    changes = [
        TopicChange(versions[0], versions[1], {"orders": TopicConfig("orders", 4, 8)}),
        TopicChange(versions[1], versions[2], removed=("orders", "ü")),
    ]
    data = golden("reput_files/v1/topic_journal.hex")
    assert b"".join(change.encode() for change in changes) == data
    assert topic_journal.decode(data) == (changes, len(data))
    assert checksummed.unwrap("topic-journal", data[302:]).startswith(b'{"before":[8,')


def plain_mix(value: int) -> int:
    """Mix a number as SplitMix64 does."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def test_index_filter() -> None:
    """A filter has a header that names its index file, and a block with seven bits for each of three keys."""
    hashes, slots, capacity = [1, 2_598_919, 2**31 - 1], 7, 12
    file = bytearray(index_file.file_size_bytes(slots, capacity))
    columns = array("q", [100, 300]), array("q", [STORE_TIME_MS, STORE_TIME_MS + 5_000]), array("i", [1, 2])
    assert put_index_entries(file, 0, *columns, 0, array("i", hashes), 2, slots, capacity) == (2, 3)
    data = golden("index_filter/v1/three_keys.hex")
    header = index_filter.encode_header("20231114221320123", lambda at, size: file[at : at + size], slots)
    blocks = bytearray(64)
    assert fill_filter(file, slots, 1, 4, array("i", bytes(4 * slots)), blocks) == 4
    seal_filter(blocks, index_filter.header_seed(header))
    assert header + blocks == data
    seed = int.from_bytes(data[28:32], "big")
    found = index_filter.decode_filter_header(data)
    assert found == FilterHeader("20231114221320123", index_file.decode_header(file), 1, 0xD8824BBA, seed)
    assert found.file_size_bytes == len(data)
    words = [0] * 8
    for bits in map(plain_mix, hashes):
        for number in range(1, 8):
            words[number] |= 1 << (bits >> 6 * (number - 1)) % 64
    factors = [(0xBF58476D1CE4E5B9 + 2 * 0x9E3779B97F4A7C15 * number) % 2**64 for number in range(7)]
    terms = [(word ^ word >> 32) * factor for word, factor in zip(words[1:], factors, strict=True)]
    words[0] = (plain_mix(seed) + sum(terms)) % 2**64 | 1
    assert struct.pack(">8Q", *words) == data[128:]
    with pytest.raises(NewerVersion):
        index_filter.decode_filter_header(checksummed.wrap("index-filter", data[32:128], version=2))


def test_replication() -> None:
    """The files keep the identity of a copy and its in-sync set, and fields of later versions are ignored."""
    replica = ReplicaFile(store_id="0123456789abcdef" * 2, promised_epoch=7, replicated_physical_offset=900)
    data = b'{"store_id":"%s","promised_epoch":7,"replicated_physical_offset":900,"is_synchronous":false,'
    data = data % (b"0123456789abcdef" * 2) + b'"seat":null,"instead_of":null}'
    assert checksummed.unwrap("replica", replica.encode()) == data
    told = msgspec.structs.replace(replica, seat=RoleSetting("slave", "b:7101"), instead_of=RoleSetting("async_master"))
    assert told.encode().endswith(b'"seat":["slave","b:7101"],"instead_of":["async_master",""]}')
    assert ReplicaFile.decode(told.encode()) == told
    assert ReplicaFile.decode(checksummed.wrap("replica", data)) == replica
    in_sync = InSyncFile(history_id="h", epoch=3, leader=Member("a", "0a"), others=[Member("b", "0b")], min_in_sync=2)
    data = b'{"history_id":"h","epoch":3,"leader":["a","0a"],"others":[["b","0b"]],"min_in_sync":2}'
    assert checksummed.unwrap("in-sync-set", in_sync.encode()) == data
    later = data.replace(b"}", b',"successor":"b"}')
    assert InSyncFile.decode(checksummed.wrap("in-sync-set", later)) == in_sync


def test_state_record() -> None:
    """State records, which Indexers share, have this text.

    Text that is not a record, or that has a later format, is refused. An unknown field is ignored.
    """
    record = StateRecord(
        origin="o", number=7, offsets={"billing": {"orders": {0: 120, 1: None}}}, delays={3: DelayProgress(17, 4, 2)},
        copy=CopyPart(0, 2),
    )  # fmt: skip
    data = (
        b'{"format":1,"origin":"o","number":7,"offsets":{"billing":{"orders":{"0":120,"1":null}}},'
        b'"delays":{"3":[17,4,2]},"copy":[0,2]}'
    )
    assert record.encode() == data
    assert StateRecord.decode(data) == record
    assert StateRecord.decode(data[:-1] + b',"later":1}') == record
    bad = (
        b"", b"{", b"[]", data.replace(b":1,", b":0,", 1), data.replace(b"120", b"-1"), data.replace(b"120", b"1e30"),
        data.replace(b"billing", b"a@b"), data.replace(b"billing", b""), data.replace(b'"0"', b'"-1"'),
        data.replace(b"[0,2]", b"[2,2]"), data.replace(b"[17,4,2]", b"17"), b"[" * 100_000, b"\xff",
    )  # fmt: skip
    for text in bad:
        with pytest.raises(BadField):
            StateRecord.decode(text)


def test_shared_state_file() -> None:
    """The file keeps how far an Indexer has read the shared state records."""
    file = SharedStateFile(next_queue_offset=9, delays={3: DelayProgress(17, 4, 2)})
    data = checksummed.wrap("shared-state", b'{"next_queue_offset":9,"delays":{"3":[17,4,2]}}')
    assert file.encode() == data
    assert SharedStateFile.decode(data) == file


def test_unsent_offsets_file() -> None:
    """The file keeps changes of consumer offsets that no leader accepted before the Indexer stopped."""
    file = UnsentOffsetsFile(next_queue_offset=9, offsets={"billing": {"orders": {0: 7, 1: None}}})
    data = checksummed.wrap(
        "unsent-offsets", b'{"next_queue_offset":9,"offsets":{"billing":{"orders":{"0":7,"1":null}}}}'
    )
    assert file.encode() == data
    assert UnsentOffsetsFile.decode(data) == file


def test_leadership_record() -> None:
    """A coordinator keeps the leadership record as this text, and invalid text or a later version is refused."""
    record = LeadershipRecord(
        history_id="h", epoch=3, leader=Member("b", "0b"), leader_target="b:7101",
        in_sync=(Member("b", "0b"), Member("c", "0c")), min_in_sync=2, floor_physical_offset=900,
    )  # fmt: skip
    data = (
        b'{"version":1,"history_id":"h","epoch":3,"leader":["b","0b"],"leader_target":"b:7101",'
        b'"in_sync":[["b","0b"],["c","0c"]],"min_in_sync":2,"floor_physical_offset":900,"successor":""}'
    )
    assert record.encode() == data
    assert LeadershipRecord.decode(data) == record
    bad = (
        b"", b"{}", data[:-1], data.replace(b'"version":1', b'"version":0'), data.replace(b'"epoch":3', b'"epoch":0'),
        data.replace(b'"h"', b'"\xff"'), b"[" * 100_000, data.replace(b"3", b"99999999999999999999"),
    )  # fmt: skip
    for each in bad:
        with pytest.raises(BadField):
            LeadershipRecord.decode(each)
