# SPDX-License-Identifier: Apache-2.0
"""Values of the API: the fields of a stored message, and valid times."""

from datetime import UTC, datetime

import pytest
from reput.common.v1 import message_pb2
from reput_client import Message, NewMessage
from reput_client.core.encode import Encoder
from reput_client.core.types import TIME_MS_MAX, check_place, to_ms

NOW = datetime(2026, 11, 28, 7, 30, tzinfo=UTC)
NOW_S = int(NOW.timestamp())


def stored(**fields: object) -> Message:
    """A message as the store returns it."""
    return Message(message_pb2.StoredMessage(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a b", ("a", "b")),
        ("  a   b ", ("a", "b")),
        ("", ()),
        (" ", ()),
        ("東京\u3000支店", ("東京\u3000支店",)),
        ("tab\there new\nline no\u00a0break", ("tab\there", "new\nline", "no\u00a0break")),
        ("a\x1cb\u2028c\r", ("a\x1cb\u2028c\r",)),
    ],
)
def test_spaces_alone_separate_keys(text: str, keys: tuple[str, ...]) -> None:
    """Keys are the keys of the index: other white space is part of a key, and runs of spaces separate like a space."""
    assert stored(properties={"KEYS": text}).keys == keys


@pytest.mark.parametrize("time_ms", [NOW_S * 1000, 0, -1, 10**11, TIME_MS_MAX])
def test_milliseconds_are_times(time_ms: int) -> None:
    """From 1973 to the year 9999, the epoch itself and times before it."""
    assert to_ms(time_ms) == time_ms
    assert to_ms(NOW) == NOW_S * 1000


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (NOW_S, f"{NOW_S} looks like seconds: use milliseconds since the epoch [(]{NOW_S}000[)]"),
        (1, "1 looks like seconds"),
        (NOW_S * 10**6, "behind the year 9999.*looks like microseconds"),
        (NOW_S * 10**9, "behind the year 9999.*looks like nanoseconds"),
        (TIME_MS_MAX + 1, "behind the year 9999"),
    ],
)
def test_slips_of_units_are_refused(slip: int, words: str) -> None:
    """A caller that gives seconds, micro- or nanoseconds would read all messages, or none."""
    with pytest.raises(ValueError, match=words):
        to_ms(slip)
    with pytest.raises(ValueError, match=words):
        check_place(slip)
    with pytest.raises(ValueError, match=words):
        Encoder(makes_unique_ids=False).encode(NewMessage("t", b"", deliver_at=slip))


@pytest.mark.parametrize("wrong", [True, 1.5, "2026-11-28", None])
def test_what_is_no_time_is_refused(wrong: object) -> None:
    """A bool is none, although Python counts it among the numbers."""
    with pytest.raises(TypeError, match="no time"):
        to_ms(wrong)  # type: ignore[arg-type]


def test_born_times_that_no_reader_can_show_are_refused() -> None:
    """The error names field, value and limit, and the slip that it is most likely."""
    encoder = Encoder(makes_unique_ids=False)
    for born_time_ms in (0, 5, TIME_MS_MAX):
        encoder.encode(NewMessage("t", b"", born_time_ms=born_time_ms))
    for wrong, words in ((NOW_S * 10**9, "nanoseconds"), (NOW_S * 10**6, "microseconds"), (-1, "milliseconds")):
        with pytest.raises(ValueError, match=f"born_time_ms is {wrong}, and not 0 to {TIME_MS_MAX}.*{words}"):
            encoder.encode(NewMessage("t", b"", born_time_ms=wrong))
    with pytest.raises(TypeError, match="born_time_ms is True"):
        encoder.encode(NewMessage("t", b"", born_time_ms=True))


@pytest.mark.parametrize("born_time_ms", [NOW_S * 10**6, NOW_S * 10**9, 2**63 - 1])
def test_a_stored_born_time_that_is_far_away_is_the_last_one(born_time_ms: int) -> None:
    """Reading a message of another store does not raise. The number itself is in `born_time_ms`."""
    message = stored(born_time_ms=born_time_ms)
    assert message.born_time == datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)
    assert message.born_time_ms == born_time_ms
    assert stored(born_time_ms=-(2**63)).born_time == datetime(1, 1, 1, tzinfo=UTC)
