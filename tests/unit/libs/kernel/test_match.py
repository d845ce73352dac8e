# SPDX-License-Identifier: Apache-2.0
"""matching_records chooses the records that libs.formats says have the topic, the key and the time."""

import contextlib
import random
from array import array
from typing import Any

import numpy as np
import pytest

from libs.formats.records import properties, record
from tests.support.records import IPV6_BORN, STORE_TIME_MS, encoded
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
KEYS = [b"a", b"b", b"aa", "имя".encode(), b"U1", b"a b"]
RAW = [
    b"", b"KEYS\x01a\x02", b"KEYS\x01 a  b \x02", b"KEYS\x01aa b", b"KEYS\x01a\x02KEYS\x01b\x02", b"UNIQ_KEY\x01U1\x02",
    b"UNIQ_KEY\x01a b\x02KEYS\x01aa\x02", b"KEYS\x01a\x02KEYS\x01\x02", b"\x01a\x02KEYS\x01b\x01a\x02",
    b"KEYSX\x01a\x02", b"KEYS",
    "KEYS\x01имя x\x02".encode(), b"UNIQ_KEY\x01b\x02UNIQ_KEY\x01a\x02", b"keys\x01a\x02",
]  # fmt: skip
TOPICS = ["T", "TT", "тема"]


def random_records(chance: random.Random) -> tuple[bytes, Any, Any]:
    """Records of every shape, some of which are no longer kept."""
    raw = [
        encoded(
            number,
            topic=chance.choice(TOPICS),
            properties=chance.choice(RAW),
            store_time_ms=STORE_TIME_MS + chance.randrange(4),
            sys_flag=chance.choice((0, 0, 0, record.INNER_BATCH_FLAG)),
            **chance.choice(({}, {"born_host": IPV6_BORN})),
        )
        for number in range(60)
    ]
    sizes = np.array([len(one) for one in raw], np.int32)
    positions = np.cumsum(sizes, dtype=np.int64) - sizes
    sizes[[chance.randrange(60) for _ in range(5)]] = 0
    return b"".join(raw), positions, sizes


@pytest.mark.parametrize("seed", range(20))
def test_the_records_of_a_key(build: Build, seed: int) -> None:
    """Topic, key and time are compared as the formats say; batches and records that are gone do not match."""
    chance = random.Random(seed)
    data, positions, sizes = random_records(chance)
    topic, start, end = chance.choice(TOPICS), STORE_TIME_MS + chance.randrange(2), STORE_TIME_MS + chance.randrange(5)
    numbers = array("i", [chance.randrange(len(KEYS)) for _ in range(60)])
    for is_unique_id in (False, True):
        expected = []
        for row, (position, size) in enumerate(zip(positions.tolist(), sizes.tolist(), strict=True)):
            one, key = record.decode(data, position), KEYS[numbers[row]]
            unique_id = properties.get(one.properties, properties.UNIQ_KEY)
            has_key = unique_id == key if is_unique_id else key in properties.keys_of(one.properties)
            is_plain = size > 0 and not one.sys_flag & record.INNER_BATCH_FLAG
            if is_plain and has_key and one.topic == topic and start <= one.store_time_ms < end:
                expected.append(row)
        arguments = (topic.encode(), KEYS, numbers, start, end, is_unique_id)
        assert build.match_cy.matching_records(data, positions, sizes, *arguments) == expected


def test_damaged_records_are_named(build: Build) -> None:
    """A record that is not whole, or not of its listed size, stops the call with its position; nothing is over-read."""
    good, room, rest = encoded(7), Guarded(4096), (b"TopicTest", [b"a"], array("i", [0]), 0, 2**62, False)
    match = build.match_cy.matching_records
    for cut in range(len(good)):
        with pytest.raises(ValueError, match="position 0"):
            match(room.hold(good[:cut]), array("q", [0]), array("i", [len(good)]), *rest)
    held = room.hold(good + good)
    for place, size in ((1, len(good)), (len(good), len(good) - 1), (-1, len(good)), (0, -1), (2**62, 9)):
        with pytest.raises(ValueError, match=f"position {place}"):
            match(held, array("q", [place]), array("i", [size]), *rest)
    for damaged in range(len(good)):
        changed = bytearray(good)
        changed[damaged] ^= 0xFF
        with contextlib.suppress(ValueError):
            match(room.hold(bytes(changed)), array("q", [0]), array("i", [len(good)]), *rest)


def test_columns_that_do_not_fit(build: Build) -> None:
    """Columns of different lengths and numbers without a key are errors."""
    data, columns = encoded(0), (array("q", [0]), array("i", [len(encoded(0))]))
    for numbers, keys in (([], [b"a"]), ([1], [b"a"]), ([-1], [b"a"]), ([0], [])):
        with pytest.raises(ValueError, match=r"key|lengths"):
            build.match_cy.matching_records(data, *columns, b"T", keys, array("i", numbers), 0, 1, False)
