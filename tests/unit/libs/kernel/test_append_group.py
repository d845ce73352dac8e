# SPDX-License-Identifier: Apache-2.0
"""A group of requests has the effect of its requests in sequence, up to the first request that is not placed."""

import random
from collections.abc import Sequence

import pytest

from libs.formats.protobuf_wire import length_delimited
from libs.kernel import layout
from libs.kernel.append.append_columns import AppendColumns, AppendLimits
from tests.support.records import IPV4_BORN, IPV6_BORN, STORE_TIME_MS
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import Appender, entry, message, request
from tests.unit.libs.kernel.test_append_refusals import REFUSALS

BORN_HOSTS = IPV4_BORN.to_bytes(), IPV6_BORN.to_bytes()


def append_group(
    appender: Appender, requests: Sequence[bytes], hosts: Sequence[bytes] | None = None
) -> list[tuple[int, int, int]]:
    """The kernel's answer; the position moves on."""
    limits = AppendLimits(**appender.limits, crc_property=appender.crc_property)
    placed: list[tuple[int, int, int]] = appender.build.append_cy.append_group(
        requests,
        hosts or [appender.born_host] * len(requests),
        appender.segment,
        appender.position,
        appender.base_physical_offset,
        STORE_TIME_MS,
        appender.store_host,
        appender.table,
        limits,
        appender.columns,
    )
    appender.columns.count = sum(count for _, count, _ in placed)
    appender.position = placed[-1][0] if placed else appender.position
    return placed


def traces(appender: Appender) -> tuple[object, ...]:
    """All data that an append changes."""
    table = appender.table
    return appender.position, bytes(appender.segment), sorted(table.counters()), table.rows.tolist()


def some_request(chance: random.Random) -> bytes:
    """A request of 1 to 4 messages, with a given queue, a queue of the server's choice, or a queue by key."""
    made = []
    for _ in range(chance.randint(1, 4)):
        parts = [entry(b"__SHARDINGKEY", chance.randbytes(3).hex().encode())] * chance.randrange(2)
        delay = [length_delimited(5, b"DELAY\x013\x02")] if not parts and chance.random() < 0.2 else []
        topic = chance.choice([b"TopicTest", b"Other"])
        queue_id = chance.choice([None, *range(4)])
        made.append(message(topic, *parts, *delay, body=chance.randbytes(chance.randrange(200)), queue_id=queue_id))
    return request(*made, durability=chance.randrange(4))


@pytest.mark.parametrize("build", BUILDS, ids=label)
@pytest.mark.parametrize("crc_property", [False, True])
def test_as_one_by_one(build: Build, chance: random.Random, crc_property: bool) -> None:
    """The bytes, queue offsets and columns are the same, for any requests and any born hosts."""
    for _ in range(20):
        together, one_by_one = (Appender(build, crc_property) for _ in range(2))
        requests = [some_request(chance) for _ in range(chance.randint(1, 20))]
        hosts = [chance.choice(BORN_HOSTS) for _ in requests]
        placed = append_group(together, requests, hosts)
        expected, places = [], []
        for one, one_by_one.born_host in zip(requests, hosts, strict=True):
            end = one_by_one.append(one)
            places += one_by_one.placed()
            expected.append((end, one_by_one.columns.count, one_by_one.columns.durability))
        assert placed == expected
        assert together.placed() == places
        assert traces(together) == traces(one_by_one)


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_ends_before_what_is_refused(build: Build, subtests: pytest.Subtests) -> None:
    """A refused request, for any fault, and all requests behind it leave no trace."""
    good = request(message(), message(queue_id=None), durability=1)
    for name, (refused, *_) in REFUSALS.items():
        together, alone = Appender(build), Appender(build)
        end = alone.append(good)
        with subtests.test(name):
            assert append_group(together, [good, refused, good]) == [(end, 2, 1)]
            assert traces(together) == traces(alone)
            assert append_group(together, [refused]) == []
            assert traces(together) == traces(alone)


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_ends_before_a_writer(build: Build) -> None:
    """A group ends before a writer's batch, which needs a stamp from the caller."""
    writer = length_delimited(3, length_delimited(1, b"writer"))
    assert len(append_group(Appender(build), [request(message()), request(message()) + writer])) == 1


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_ends_where_the_segment_does(build: Build) -> None:
    """A group ends where the segment has no room for the next request and the blank, as a single request does."""
    size_bytes = Appender(build).append(request(message()))
    for room_bytes in (2 * size_bytes + layout.BLANK_SIZE_MIN - 1, 2 * size_bytes + layout.BLANK_SIZE_MIN):
        appender = Appender(build, segment=bytearray(room_bytes))
        placed = append_group(appender, [request(message())] * 3)
        assert len(placed) == (room_bytes - layout.BLANK_SIZE_MIN) // size_bytes


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_ends_where_the_columns_do(build: Build) -> None:
    """The messages of all requests share the columns, and a group ends before a request that does not fit."""
    appender = Appender(build)
    appender.columns = AppendColumns(5)
    two = request(message(), message(queue_id=2))
    assert len(append_group(appender, [two, two, two])) == 2
    assert len(append_group(appender, [two, two, request(message()), two])) == 3


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_arguments_of_the_programmer(build: Build) -> None:
    """Wrong arguments of the store itself raise ValueError."""
    with pytest.raises(ValueError, match="a host has"):
        append_group(Appender(build), [request(message())], [b"four"])
    with pytest.raises(ValueError, match="zip"):
        append_group(Appender(build), [request(message())], [*BORN_HOSTS])
    with pytest.raises(ValueError, match="outside"):
        append_group(Appender(build, position=1 << 21), [request(message())])
