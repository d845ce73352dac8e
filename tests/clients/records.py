# SPDX-License-Identifier: Apache-2.0
"""Cases of answers with records, which each client's own tests decode: `python -m tests.clients.records` writes them.

Format: docs/formats/records_in_answers.md. Bytes are hexadecimal. 64-bit numbers are text, as in protobuf's JSON.
"""

import base64
import json
import struct
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from libs.formats.records import record
from tests.support.records import IPV6_BORN, IPV6_STORE, encoded, stored_message

FILE = Path(__file__).with_suffix(".json")

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "the store's own property is not shown": {"crc_property": True},
    "nothing but a header": {"body": b"", "properties": b"", "queue_id": 0, "queue_offset": 0, "topic": "t"},
    "IPv6 hosts, version 2, a long topic": {
        "born_host": IPV6_BORN, "store_host": IPV6_STORE, "version": 2, "topic": "t" * 300,
    },
    "an IPv6 host of the producer": {"born_host": IPV6_BORN, "reconsume_times": 3},
    "an IPv6 host of the store": {"store_host": IPV6_STORE, "prepared_transaction_offset": 2**40},
    "negative numbers": {"flag": -1, "sys_flag": -1 & ~0x30, "reconsume_times": 2**31 - 1, "queue_id": -5},
    "large numbers": {"queue_offset": 2**53 - 1, "prepared_transaction_offset": -(2**53) + 1, "born_time_ms": -1},
    "text of many languages": {
        "properties": "имя\x01значение😀\x02A\x01b\x01c".encode(), "topic": "订单", "body": bytes(range(256)) * 3,
    },
    "pieces that are no properties": {
        "properties": b"broken\x02\x01x\x02A\x01\x02A\x011\x02A\x012\x02\x02B\x01\x02__CRC32#\x01x\x02B\x01b",
    },
    "an empty value behind a value": {"properties": b"TAGS\x01red\x02TAGS\x01\x02KEYS\x01a  b\x02"},
    "properties that are no text": {"properties": b"A\x01\xff\x02TAGS\x01x\x02"},
    "a compressed body": {"sys_flag": 0x301, "body": bytes.fromhex("789ccb48cdc9c90700062c0215")},
}  # fmt: skip


def records_of(*names: str) -> bytes:
    """The records of these shapes, one behind the other, as from different places of a log."""
    made = b""
    for number, name in enumerate(names):
        made += encoded((number + 1) << 33, **SHAPES[name])
    return made


def accepted() -> list[dict[str, Any]]:
    """Each shape by itself, and all together."""
    cases = [(name, [name]) for name in SHAPES] + [("all together", list(SHAPES))]
    return [_accepted(name, records_of(*names), len(names)) for name, names in cases]


def _accepted(name: str, records: bytes, count: int) -> dict[str, Any]:
    messages, at = [], 0
    while at < len(records):
        message = stored_message(records, at)
        at += message.record_size_bytes
        shown = MessageToDict(message, always_print_fields_with_no_presence=True)
        for field in ("body", "rawProperties"):
            shown[field] = base64.b64decode(shown[field]).hex()
        for host in (shown["bornHost"], shown["storeHost"]):
            host["address"] = base64.b64decode(host["address"]).hex()
        messages.append(shown)
    return {"name": name, "record_count": count, "records": records.hex(), "messages": messages}


def refused() -> list[dict[str, Any]]:
    """Answers that no server sends."""
    one = encoded(7, crc_property=True)
    wide = encoded(7, born_host=IPV6_BORN, store_host=IPV6_STORE, version=2)
    body_at = 84
    topic_at = one.index(b"TopicTest") - 1
    properties_at = topic_at + 1 + len(b"TopicTest")
    cases: list[tuple[str, bytes, int]] = [
        ("a count without records", b"", 1),
        ("fewer records than announced", one, 2),
        ("more records than announced", one * 2, 1),
        ("no count", one, 0),
        ("a negative count", one, -1),
        ("a huge count", one, 2**31 - 1),
        ("zeros", bytes(200), 1),
        ("a blank", record.encode_blank(200) + bytes(192), 1),
        ("bytes behind the last record", one + b"\0" * 7, 1),
        ("a header behind the last record", one + one[:91], 1),
    ]
    cases += [(f"cut to {size} bytes", one[:size], 1) for size in (1, 4, 8, 40, 87, 88, 90, 91, len(one) - 1)]
    cases += [(f"wide, cut to {size} bytes", wide[:size], 1) for size in (88, 100, 112, len(wide) - 1)]
    numbers = (-(2**31), -1, 0, 1, 8, 90, 2**31 - 1, 2**31 - 100)
    cases += [(f"a size of {size}", _with(one, 0, ">i", size), 1) for size in (*numbers, len(one) - 1, len(one) + 1)]
    cases += [(f"a size of {size}, and more records", _with(one, 0, ">i", size) + one, 2) for size in (0, 91, -1)]
    cases += [("a size that reaches over the next record", _with(one, 0, ">i", 2 * len(one)) + one, 2)]
    cases += [(f"a magic of {magic:08x}", _with(one, 4, ">I", magic), 1) for magic in (0, 0xDAA320A8, 0xCBD43194)]
    cases += [("version 2 in place of 1", _with(one, 4, ">I", 0xDAA320AB), 1)]
    cases += [("version 1 in place of 2", _with(wide, 4, ">I", 0xDAA320A7), 1)]
    cases += [(f"a body of {size} bytes", _with(one, body_at, ">i", size), 1) for size in (*numbers, len(one))]
    cases += [(f"wide, a body of {size}", _with(wide, body_at + 24, ">i", size), 1) for size in (*numbers, len(wide))]
    cases += [(f"a topic of {size} bytes", _with(one, topic_at, ">B", size), 1) for size in (0, 8, 10, 127, 128, 255)]
    cases += [(f"properties of {size}", _with(one, properties_at, ">H", size), 1) for size in (0, 1, 32_767, 65_535)]
    cases += [(f"system flag {flag:#x}", _with(one, 36, ">i", flag), 1) for flag in (0x10, 0x20, 0x30)]
    cases += [(f"wide, system flag {flag:#x}", _with(wide, 36, ">i", flag), 1) for flag in (0, 0x10, 0x20)]
    return [{"name": name, "record_count": count, "records": data.hex()} for name, data, count in cases]


def _with(data: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


def text() -> str:
    """The text of the file."""
    return json.dumps({"accepted": accepted(), "refused": refused()}, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
