# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for a time in RocketMQ's timer topic: their due time, and their properties afterwards.

Spec: docs/formats/commit_log.md section 12. RocketMQ's counterpart is TimerMessageStore.
"""

from collections.abc import Mapping

from libs.formats.limits import INT64_MAX, TIMER_PRECISION_MS

DELIVER_MS, DELAY_MS, DELAY_SEC, OUT_MS = "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS"
DEQUEUED_MS = "TIMER_DEQUEUE_MS"
"""When RocketMQ's wheel released a message: to its topic, or again to the timer topic to wait longer."""
ROLL_TIMES = "TIMER_ROLL_TIMES"
"""How often the message was appended again, so that it does not expire before it is due."""
DELETE = "TIMER_DEL_UNIQKEY"
"""Property of a record that cancels another record: the unique id of the cancelled record."""
CANCELLED = "REPUT_CANCELLED"
"""Property of a cancelling record: it cancelled in time. The same append records this in the journal of deliveries."""
DELETE_TAG, DELETE_BODY = "_RECALL_TAG_", b"0"
REAL_TOPIC, REAL_QUEUE_ID, UNIQUE_ID, TAGS = "REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "TAGS"
TIMER_NAMES = frozenset({DELIVER_MS, DELAY_MS, DELAY_SEC, OUT_MS, ROLL_TIMES, DELETE, "TIMER_ENQUEUE_MS", DEQUEUED_MS})
PLACE_NAMES = frozenset({REAL_TOPIC, REAL_QUEUE_ID})


def due_ms(properties: Mapping[str, str], store_time_ms: int) -> int:
    """Return when a record of the timer topic is due, in milliseconds since the epoch.

    The time is never too early, also for records of RocketMQ. A delay begins at the store time, and is ignored after
    the message was appended again. Without a usable delay or delivery time, TIMER_OUT_MS is used, which is a second
    early at most. Without all of them the time is 0.
    """
    delay_ms = _delay_ms(properties)
    if delay_ms is not None:
        return store_time_ms + delay_ms
    is_delay = DELAY_SEC in properties or DELAY_MS in properties
    deliver_ms = None if is_delay else _number(properties.get(DELIVER_MS, ""))
    return _by_out(properties) if deliver_ms is None else deliver_ms


def is_by_clock(properties: Mapping[str, str]) -> bool:
    """Return whether `due_ms` is a time of the machine's clock. Else it is a time of the log, which may be ahead."""
    return _delay_ms(properties) is None


def out_ms(deliver_ms: int) -> int:
    """Return TIMER_OUT_MS: the last whole second before a time."""
    return (deliver_ms - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS


def rolled(properties: Mapping[str, str], *, deliver_ms: int, unique_id: str) -> dict[str, str]:
    """Return the additional properties of a message that is appended again to wait longer. The caller drops delays."""
    times = _number(properties.get(ROLL_TIMES, "")) or 0
    return {
        DELIVER_MS: str(deliver_ms),
        OUT_MS: properties.get(OUT_MS) or str(out_ms(deliver_ms)),
        ROLL_TIMES: str(times + 1),
        UNIQUE_ID: properties.get(UNIQUE_ID) or unique_id,
    }


def delivered(deliver_ms: int, out: str) -> dict[str, str]:
    """Return the additional properties of a message in its own topic. With TIMER_OUT_MS it does not wait again."""
    return {DELIVER_MS: str(deliver_ms), OUT_MS: out or str(out_ms(deliver_ms))}


def delete_mark(topic: str, queue_id: int, *, unique_id: str, deliver_ms: int) -> dict[str, str]:
    """Return the properties of a record that cancels a message, as of RocketMQ's RecallMessageProcessor."""
    return {
        TAGS: DELETE_TAG,
        CANCELLED: "true",
        DELETE: unique_id,
        UNIQUE_ID: unique_id,
        DELIVER_MS: str(deliver_ms),
        OUT_MS: str(out_ms(deliver_ms)),
        REAL_TOPIC: topic,
        REAL_QUEUE_ID: str(queue_id),
    }


def _delay_ms(properties: Mapping[str, str]) -> int | None:
    """Return the delay from the store time on, None without such a delay."""
    for name, unit_ms in ((DELAY_SEC, 1_000), (DELAY_MS, 1)):
        if name in properties:
            delay = _number(properties[name])
            return None if ROLL_TIMES in properties or delay is None else delay * unit_ms
    return None


def _by_out(properties: Mapping[str, str]) -> int:
    out = _number(properties.get(OUT_MS, ""))
    return 0 if out is None else out + TIMER_PRECISION_MS


def _number(text: str) -> int | None:
    """Return the number of a text, None unless it is a number that is not negative."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(INT64_MAX)):
        return None
    return min(int(text), INT64_MAX)
