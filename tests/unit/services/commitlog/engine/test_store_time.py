# SPDX-License-Identifier: Apache-2.0
"""A clock that ran ahead and was set right: the log says how far its store times are ahead, and until when."""

import pytest

from services.commitlog.engine.statistics import statistics_of
from services.commitlog.rpc.status import status_of
from tests.support.commitlog import Machine, append, records

DAY_MS = 86_400_000


async def test_store_time_ahead_of_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """It is in the status and the metrics, and told once, after a restart again; then the clock has caught up."""
    machine = Machine()
    log = await machine.start()
    log.store_time.look()
    machine.clock.set_now_ms(machine.clock.now_ms() + 2 * DAY_MS)
    await append(log)
    ahead_ms = machine.clock.now_ms()
    machine.clock.set_now_ms(ahead_ms - 2 * DAY_MS)
    await append(log)
    assert {one.store_time_ms for one in records(log)} == {ahead_ms}
    for _ in range(3):
        log.store_time.look()
    assert statistics_of(log).store_time_ahead_ms == status_of(machine.process(log)).store_time_ahead_ms == 2 * DAY_MS
    told = "store time is 172800.0 s ahead of the clock: all messages get one store time"
    assert caplog.text.count(told) == 1
    await machine.stop(log)
    async with machine.running() as log:
        log.store_time.look()
        assert caplog.text.count(told) == 2
        machine.clock.advance(2 * DAY_MS)
        await append(log)
        log.store_time.look()
        log.store_time.look()
    assert caplog.text.count("store time follows the clock again") == 1
    assert statistics_of(log).store_time_ahead_ms == 0


@pytest.mark.parametrize(("back_ms", "is_told"), [(10_000, False), (10_001, True)])
async def test_a_small_step_back_is_nobodys_business(
    back_ms: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Clocks are set by a little all the time."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        machine.clock.set_now_ms(machine.clock.now_ms() - back_ms)
        log.store_time.look()
    assert ("ahead of the clock" in caplog.text) is is_told
