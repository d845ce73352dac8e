# SPDX-License-Identifier: Apache-2.0
"""The limits at which a full disk refuses appends, and accepts them again."""

import pytest

from services.commitlog.errors import AppendsRefused
from tests.support.commitlog import Machine, append

PLENTY = 1 << 40
STEPS = ((9000, True), (9050, False), (8600, False), (8550, False), (8500, True), (9000, True))
"""Used parts of the disk, in ten thousandths, and whether appends are accepted."""


async def test_percent_with_hysteresis() -> None:
    """Above 90 % appends are refused, until 85 % is reached again; percents are rounded up."""
    machine = Machine(disk_full_percent=90)
    async with machine.running() as log:
        for used, is_open in STEPS:
            machine.fs.capacity_bytes = -(-machine.fs.used_bytes() * 10_000 // used)
            await log.disk.look()
            assert log.gate.is_open is is_open, used
            if not is_open:
                assert log.gate.refusals() == ["STORE_FULL"]
                with pytest.raises(AppendsRefused, match="disk_full_percent"):
                    await append(log)
        machine.fs.capacity_bytes = PLENTY


async def test_without_a_limit() -> None:
    """A limit of 100 % refuses nothing."""
    machine = Machine()
    async with machine.running() as log:
        machine.fs.capacity_bytes = machine.fs.used_bytes() + 1
        await log.disk.look()
        assert log.gate.is_open
        machine.fs.capacity_bytes = PLENTY


async def test_a_report_holds_for_a_while() -> None:
    """The report of a full disk expires when the Janitor stops reporting; a repeated report refuses appends again."""
    machine = Machine(disk_report_timeout_ms=60_000)
    async with machine.running() as log:
        log.disk.report(is_full=True, used_ratio=0.95)
        machine.clock.advance(59_000)
        await log.disk.look()
        assert not log.gate.is_open
        log.disk.report(is_full=True, used_ratio=0.95)
        machine.clock.advance(59_000)
        await log.disk.look()
        with pytest.raises(AppendsRefused, match="Janitor"):
            await append(log)
        machine.clock.advance(2_000)
        await log.disk.look()
        await append(log)
