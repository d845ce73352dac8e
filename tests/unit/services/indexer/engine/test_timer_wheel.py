# SPDX-License-Identifier: Apache-2.0
"""TimerWheel: the files that RocketMQ finds for messages that wait for a time."""

from pathlib import Path

from libs.formats.config import timer_checkpoint
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.groups.timer_wheel import TimerWheel

STORE = Path("/store")


def test_rocketmq_begins_where_it_is_told() -> None:
    """A checkpoint names the place where RocketMQ begins, and the files of an old wheel are removed."""
    fs, clock = MemoryFs(), ManualClock()
    fs.make_directory(STORE)
    TimerWheel(fs, STORE, clock).begin_at(7)
    fs.make_directory(STORE / "timerlog")
    for name in ("timerwheel", f"timerlog/{0:020}", "timerlog/00000000000104857600"):
        fs.write_atomic(STORE / name, b"old")
    TimerWheel(fs, STORE, clock).begin_at(42)
    assert fs.read(STORE / "config/timercheck") == timer_checkpoint.encode(42, clock.now_ms())
    assert fs.list(STORE / "timerlog") == []
    assert not fs.exists(STORE / "timerwheel")
