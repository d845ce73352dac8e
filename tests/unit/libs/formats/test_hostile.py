# SPDX-License-Identifier: Apache-2.0
"""Every decoder against hostile input: cut, flipped, zero-filled, random. Nothing but a FormatError may come out."""

import random
from collections.abc import Callable

import pytest

from libs.formats import crc, protobuf_wire, store_layout
from libs.formats.config import config_json, consumer_offsets_json, topics_json
from libs.formats.errors import BadField, FormatError
from libs.formats.indexes import batch_consume_queue, consume_queue, consume_queue_ext, index_file
from libs.formats.records import message_id, properties, record, writer_stamp
from libs.formats.records.host import Host
from libs.formats.state import (
    checksummed,
    epoch_file,
    index_filter,
    log_history,
    store_checkpoint,
    topic_journal,
)
from libs.formats.state.index_progress import IndexProgress
from libs.formats.state.log_directories import LogDirectories
from libs.formats.state.log_history import LogHistoryFile, QueueEnd
from libs.formats.state.queue_snapshot import QueueSnapshot, SegmentTimes
from libs.formats.state.replication import InSyncFile, Member, ReplicaFile
from tests.support.golden import golden


def _text(decode: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: decode(data.decode("latin-1"))


DECODERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "record": (record.decode, golden("commit_log/v1/plain_record.hex")),
    "record with IPv6": (record.decode, golden("commit_log/v1/v2_ipv6_record.hex")),
    "record with CRC property": (record.decode, golden("commit_log/v1/crc_property_record.hex")),
    "record without checks": (
        lambda data: record.decode(data, check_crc=False),
        golden("commit_log/v1/plain_record.hex"),
    ),
    "properties": (properties.decode, b"TAGS\x01TagA\x02KEYS\x01a b\x02"),
    "one property": (lambda data: properties.get(data, b"KEYS"), b"TAGS\x01TagA\x02KEYS\x01a b\x02"),
    "keys": (properties.keys_of, b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02"),
    "removal": (lambda data: properties.remove(data, b"TAGS"), b"TAGS\x01TagA\x02KEYS\x01a b\x02"),
    "CRC property": (crc.crc_property_value, crc.crc_property(42)),
    "writer stamp": (
        writer_stamp.decode,
        writer_stamp.encode_property(writer_stamp.WriterStamp("q/0", 7, 9, 1 << 40, 500))[13:-1],
    ),
    "host": (Host.from_bytes, bytes(8)),
    "host text": (_text(Host.parse), b"10.0.0.5:10911"),
    "IPv6 host text": (_text(Host.parse), b"[2001:db8::5]:10911"),
    "offset id": (_text(message_id.decode_offset_id), b"0A00000500002A9F00000000400000E0"),
    "queue unit": (consume_queue.decode_unit, golden("consume_queue/v1/units.hex")),
    "batch queue unit": (batch_consume_queue.decode_unit, golden("consume_queue/v1/batch_unit.hex")),
    "extension unit": (consume_queue_ext.decode_unit, golden("consume_queue/v1/extension_unit.hex")),
    "index header": (index_file.decode_header, golden("index_file/v1/first_record.hex")),
    "index entry": (lambda data: index_file.decode_entry(data, 0), golden("index_file/v1/successor_entry.hex")),
    "index filter": (index_filter.decode_filter_header, golden("index_filter/v1/three_keys.hex")[:128]),
    "checkpoint": (store_checkpoint.decode, golden("store_checkpoint/v1/version_5.hex")),
    "epoch file": (epoch_file.decode, golden("epoch_file/v1/two_epochs.hex")),
    "JSON": (_text(config_json.loads), b'{"T@G":{0:5,1:7,"x":[1.5,null,true,"\\u0041"]}}'),
    "topics": (_text(topics_json.loads), golden("config_files/v1/topics.json")),
    "topic journal": (topic_journal.decode, golden("reput_files/v1/topic_journal.hex")),
    "consumer offsets": (_text(consumer_offsets_json.loads), golden("config_files/v1/consumerOffset.json")),
    "envelope": (checksummed.unwrap_any, golden("reput_files/v1/envelope.hex")),
    "queue snapshot": (
        QueueSnapshot.decode,
        QueueSnapshot(9, 5, [SegmentTimes(0, 1, 5)], []).encode_with(iter([(b"t", 0, 7)])),
    ),
    "index progress": (IndexProgress.decode, IndexProgress(epoch=3).encode()),
    "log history": (LogHistoryFile.decode, LogHistoryFile(ends=[QueueEnd("t", 0, 7, 5)]).encode()),
    "history's name": (log_history.decode_name, log_history.encode_name("0a1b")),
    "replica": (ReplicaFile.decode, ReplicaFile(store_id="0a" * 16, replicated_physical_offset=7).encode()),
    "in-sync set": (
        InSyncFile.decode,
        InSyncFile(history_id="h", epoch=1, leader=Member("a", "0"), others=[Member("b", "1")], min_in_sync=2).encode(),
    ),
    "log directories": (LogDirectories.decode, LogDirectories(["commitlog", "/disk2"]).encode()),
    "protobuf": (lambda data: list(protobuf_wire.fields(data)), b"\x08\x96\x01\x12\x03abc\x1d\0\0\0\0\x21" + bytes(8)),
    "file name": (_text(store_layout.parse_file_name), b"00000000001073741824"),
}


def outcome(decode: Callable[[bytes], object], data: bytes) -> FormatError | None:
    """The FormatError that the decoder raises, None if it accepts; anything else fails the test."""
    try:
        decode(data)
    except FormatError as error:
        found: FormatError | None = error
    else:
        found = None
    assert found is None or (0 <= found.position <= len(data) and found.reason)
    return found


@pytest.mark.parametrize("name", DECODERS)
def test_hostile_input_ends_in_a_format_error(name: str) -> None:
    """Truncations, flipped bytes, zero fill and noise end in a value or in a FormatError placed inside the input."""
    decode, good = DECODERS[name]
    chance = random.Random(f"hostile {name}")
    for size in range(len(good)):
        outcome(decode, good[:size])
        outcome(decode, good[:size] + bytes(len(good) - size))
        for bits in (0x01, 0x02, 0x10, 0x80, 0xFF):
            outcome(decode, good[:size] + bytes([good[size] ^ bits]) + good[size + 1 :])
    for _ in range(300):
        outcome(decode, chance.randbytes(chance.randrange(100)))
        position = chance.randrange(len(good))
        outcome(decode, good[:position] + chance.randbytes(9) + good[position + 9 :])


# Decoders of items with a fixed or self-declared size: a cut item is never accepted as a whole item.
WHOLE = ["record", "record with IPv6", "record with CRC property", "record without checks", "CRC property", "host"]
WHOLE += ["offset id", "batch queue unit", "extension unit", "checkpoint"]
WHOLE += ["index filter", "envelope", "epoch file", "JSON", "topics", "consumer offsets", "file name"]


@pytest.mark.parametrize("name", WHOLE)
def test_no_truncation_is_accepted(name: str) -> None:
    """A cut item is never read as a whole item."""
    decode, good = DECODERS[name]
    # Without its last newline an epoch file has another checksum; with all zeros behind it a checkpoint is whole.
    for size in range(len(good)):
        assert outcome(decode, good[:size]) is not None, size


CHECKED = ["record with CRC property", "envelope", "epoch file", "queue snapshot", "index progress"]
CHECKED += ["index filter", "log history", "history's name", "log directories"]


@pytest.mark.parametrize("name", CHECKED)
def test_no_flip_is_accepted_where_a_checksum_covers_it(name: str) -> None:
    """A checksum finds each flipped byte that it covers."""
    decode, good = DECODERS[name]
    end = len(good) - 20 if name.startswith("record") else len(good)
    for position in range(end):
        for bits in (0x01, 0x80, 0xFF):
            assert outcome(decode, good[:position] + bytes([good[position] ^ bits]) + good[position + 1 :]) is not None


@pytest.mark.parametrize(
    ("decode", "data", "position"),
    [
        (config_json.loads, '{"a":{0:1,1:x}}', 12),
        (config_json.loads, '{"a":"b",c:1}', 9),
        (config_json.loads, "", 0),
        (config_json.loads, '{"a":', 5),
    ],
)
def test_json_errors_are_placed_in_the_original_text(decode: Callable[[str], object], data: str, position: int) -> None:
    """Quoting integer keys first does not move the position of a mistake."""
    with pytest.raises(BadField) as caught:
        decode(data)
    assert caught.value.position == position


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a":' + "9" * 100_000 + "}",
        '{"a":NaN}',
        '{"a":Infinity}',
        '"' + '\\"' * 200_000,
        "{" + " " * 200_000,
        "{," * 100_000,
    ],
    ids=lambda text: text[:6],
)
def test_expensive_json_is_refused_quickly(text: str) -> None:
    """Deep nesting, endless numbers and unfinished strings are refused in time linear in their size."""
    with pytest.raises(FormatError):
        config_json.loads(text)
