# SPDX-License-Identifier: Apache-2.0
"""Any bytes that arrive as a batch are appended whole or refused with a reason, and the log stays sound."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from libs.requests.errors import ServiceError
from tests.support.commitlog import BORN_HOST, Machine, message, records, request

GOOD = [
    request(message(b"abc", properties={"TAGS": "x", "KEYS": "a b"}), message(b"d", property_string=b"a\x01b\x02")),
    request(message(topic="other"), message(sys_flag=4), durability=1),
    request(message(properties={"DELAY": "2"}), message(b"e")),
]
EDITS = st.lists(st.tuples(st.sampled_from("sdi"), st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4)


def edited(raw: bytes, edits: list[tuple[str, float, int]]) -> bytes:
    """Return the bytes with some bytes set, cut off and inserted."""
    data = bytearray(raw)
    for kind, where, value in edits:
        at = int(where * len(data))
        if kind == "i":
            data.insert(at, value)
        elif kind == "d":
            del data[at:]
        elif at < len(data):
            data[at] = value
    return bytes(data)


@given(st.lists(st.tuples(st.sampled_from(GOOD), EDITS), min_size=1, max_size=20))
def test_edited_batches(batches: list[tuple[bytes, list[tuple[str, float, int]]]]) -> None:
    """A batch that is accepted can be read back, and a batch that is refused leaves nothing, also after a restart."""

    async def run() -> None:
        machine = Machine()
        count = 0
        async with machine.running() as log:
            for raw, edits in batches:
                end = log.chain.max_physical_offset
                try:
                    count += (await log.pipeline.append(edited(raw, edits), BORN_HOST)).message_count
                except ServiceError:
                    assert log.chain.max_physical_offset == end
            assert len(records(log)) == count
            counters = sorted(log.topics.table.counters())
        async with machine.running() as log:
            assert len(records(log)) == count
            assert sorted(log.topics.table.counters()) == counters

    asyncio.run(run())
