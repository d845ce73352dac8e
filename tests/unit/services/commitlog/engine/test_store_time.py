# SPDX-License-Identifier: Apache-2.0
"""A clock that ran ahead and was corrected: the log's time continues, and the log reports the difference."""

import pytest

from libs.formats.records.record import Record
from libs.formats.state.system_topics import TIMER_TOPIC
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.rpc.status import status_of
from tests.support.commitlog import BORN_HOST, Machine, append, message, records, request

HOUR_MS = 3_600_000
DAY_MS = 86_400_000


async def ahead_by(machine: Machine, step_ms: int) -> None:
    """Let a store take a message while its clock is ahead, and set the clock right again."""
    async with machine.running() as log:
        machine.clock.set_now_ms(machine.clock.now_ms() + step_ms)
        await append(log)
        machine.clock.set_now_ms(machine.clock.now_ms() - step_ms)


async def test_store_time_ahead_of_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """The difference is in status and metrics, and logged once per start, until the clock has caught up."""
    machine = Machine()
    log = await machine.start()
    log.store_time.look()
    machine.clock.set_now_ms(machine.clock.now_ms() + 2 * DAY_MS)
    await append(log)
    ahead_ms = machine.clock.now_ms()
    machine.clock.set_now_ms(ahead_ms - 2 * DAY_MS)
    assert (await append(log)).ahead_ms == 2 * DAY_MS
    assert {one.store_time_ms for one in records(log)} == {ahead_ms}
    for _ in range(3):
        log.store_time.look()
    assert statistics_of(log).store_time_ahead_ms == status_of(machine.process(log)).store_time_ahead_ms == 2 * DAY_MS
    told = "the log's time is 172800.0 s ahead of it"
    assert caplog.text.count(told) == 1
    await machine.stop(log)
    async with machine.running() as log:
        log.store_time.look()
        assert caplog.text.count(told) == 2
        machine.clock.advance(20 * DAY_MS)
        assert (await append(log)).ahead_ms == 0
        log.store_time.look()
        log.store_time.look()
    assert caplog.text.count("store time follows the clock again") == 1
    assert statistics_of(log).store_time_ahead_ms == 0


async def test_store_time_goes_on_while_it_is_ahead() -> None:
    """The store time advances with monotonic time, a little slower, while it is ahead, and never goes back."""
    machine = Machine()
    await ahead_by(machine, HOUR_MS)
    async with machine.running() as log:
        first = (await append(log)).store_time_ms
        machine.clock.advance(10_000)
        second = (await append(log)).store_time_ms
        machine.clock.set_now_ms(machine.clock.now_ms() - HOUR_MS)
        third = await append(log)
    assert (second - first, third.store_time_ms - second) == (9_000, 0)
    assert third.ahead_ms == third.store_time_ms - machine.clock.now_ms()


async def test_times_that_messages_name_are_those_of_the_clock() -> None:
    """A message for half an hour from now waits, although the log's time is past that.

    Its properties have the clock's time, too.
    """
    machine = Machine()
    await ahead_by(machine, HOUR_MS)
    now_ms = machine.clock.now_ms()
    names = {"TIMER_DELIVER_MS": str(now_ms + HOUR_MS // 2)}, {"TIMER_DELAY_SEC": "60"}, {"TIMER_DELIVER_MS": "1"}
    async with machine.running() as log:
        await append(log, *(message(properties=one) for one in names))
        *_, deliver, delay, over = records(log)
        log.pipeline.append_group([request(message(properties=names[0]))], [BORN_HOST])
        assert records(log)[-1].topic == TIMER_TOPIC
    assert [one.topic for one in (deliver, delay, over)] == [TIMER_TOPIC, TIMER_TOPIC, "orders"]
    assert [_out_ms(one) for one in (deliver, delay)] == [now_ms + HOUR_MS // 2 - 1_000, now_ms + 59_000]


@pytest.mark.parametrize(("back_ms", "is_told"), [(10_000, False), (10_001, True)])
async def test_a_small_step_back_is_nobodys_business(
    back_ms: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A step back of the clock is logged only above 10 s, because clocks are adjusted all the time."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        machine.clock.set_now_ms(machine.clock.now_ms() - back_ms)
        log.store_time.look()
    assert ("ahead of it" in caplog.text) is is_told


def _out_ms(one: Record) -> int:
    found = dict(pair.split(b"\x01") for pair in one.properties.rstrip(b"\x02").split(b"\x02"))
    return int(found[b"TIMER_OUT_MS"])
