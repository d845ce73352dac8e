# SPDX-License-Identifier: Apache-2.0
"""Delayed messages with random properties: kernel and reference agree, and messages are delivered as they were sent."""

from hypothesis import given
from hypothesis import strategies as st

from libs.formats.protobuf_wire import length_delimited
from libs.formats.records import delay_level, properties, record
from tests.support import reference
from tests.unit.libs.kernel.builds import BUILDS
from tests.unit.libs.kernel.requests import Appender, message, request

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=6)
NAMES = st.one_of(TEXT, st.sampled_from(["KEYS", "TAGS", "WAIT", "user_id", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY"]))
LEVELS = st.one_of(st.integers(1, 18), st.integers(19, 2**31 - 1)).map(str)
PAIRS = st.lists(st.tuples(NAMES, TEXT), max_size=8)


def encoded(pairs: list[tuple[str, str]]) -> bytes:
    """Return the pairs as a property string, in their order, including equal names."""
    return b"".join(properties.encode_one(name.encode(), value.encode()) for name, value in pairs)


def is_usable(pairs: list[tuple[str, str]]) -> bool:
    """Whether no name has a special meaning for the store."""
    return not any(name in ("DELAY", "INNER_NUM") or name.startswith(("TIMER_", "__")) for name, _ in pairs)


@given(before=PAIRS.filter(is_usable), after=PAIRS.filter(is_usable), level=LEVELS, queue_id=st.integers(0, 3))
def test_kernel_and_reference_agree(
    before: list[tuple[str, str]], after: list[tuple[str, str]], level: str, queue_id: int
) -> None:
    """Both builds store the bytes of the reference.

    The delivered properties are the sent properties, without the properties for the delay.
    """
    raw = encoded([*before, ("DELAY", level), *after])
    expected = reference.delayed_properties(raw, topic=b"TopicTest", queue_id=queue_id)
    for build in BUILDS:
        appender = Appender(build)
        assert appender.append(request(message(b"TopicTest", length_delimited(5, raw), queue_id=queue_id))) > 0
        stored = record.decode(appender.segment)
        assert stored.properties == expected
        assert stored.queue_id == min(18, int(level)) - 1
    kept = [pair for pair in [*before, *after] if pair[0] not in ("REAL_TOPIC", "REAL_QID")]
    assert delay_level.delivered_properties(expected) == encoded(kept)


@given(sent=st.dictionaries(NAMES, TEXT, max_size=12), queue_id=st.integers(0, 9))
def test_properties_in_the_order_of_rocketmq_stay_in_it(sent: dict[str, str], queue_id: int) -> None:
    """Properties in the order of RocketMQ's HashMap are stored as RocketMQ would store them."""
    sent = {name: value for name, value in sent.items() if name not in ("REAL_TOPIC", "REAL_QID", "DELAY")}
    given_order = {name: {**sent, "DELAY": "2"}[name] for name in reference.hash_map_order([*sent, "DELAY"])}
    stored = reference.delayed_properties(properties.encode(given_order), topic=b"T", queue_id=queue_id)
    places = {"REAL_TOPIC": "T", "REAL_QID": str(queue_id)}
    assert stored == reference.java_properties({**given_order, **places})
