# SPDX-License-Identifier: Apache-2.0
"""Waking those who follow the log."""

import asyncio

import pytest

from services.commitlog.engine.durable.notice import EndNotice


async def test_everybody_who_waits_is_woken() -> None:
    """One notice wakes all, and leaves nothing behind for the next."""
    notice = EndNotice()
    waiting = [asyncio.create_task(notice.wait(3_600)) for _ in range(3)]
    await asyncio.sleep(0)
    notice.notify()
    await asyncio.gather(*waiting)
    assert not notice._waiters


async def test_waiting_ends_at_its_time_out() -> None:
    """Nobody waits for ever for a notice that was missed."""
    notice = EndNotice()
    await notice.wait(0.001)
    assert not notice._waiters


async def test_giving_up() -> None:
    """A waiter that is cancelled is forgotten, and disturbs no notice."""
    notice = EndNotice()
    waiting = asyncio.create_task(notice.wait(3_600))
    await asyncio.sleep(0)
    waiting.cancel()
    notice.notify()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not notice._waiters
