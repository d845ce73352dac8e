# SPDX-License-Identifier: Apache-2.0
"""TimerWheel: sets where RocketMQ reads the timer topic, so that it does not deliver earlier messages again.

RocketMQ's own wheel does not know which messages were delivered or cancelled since, so it is removed, and RocketMQ
builds it anew from the topic. Invariant: after an interruption at any time, all waiting messages are in the wheel or
are read again.
Layout: docs/formats/config_files.md section 6; RocketMQ's counterpart is TimerMessageStore. Callers: any thread.
"""

from pathlib import Path

from libs.formats import store_layout
from libs.formats.config import timer_checkpoint
from libs.machine.clock import Clock
from libs.machine.fs import Fs


class TimerWheel:
    """RocketMQ's timer files of a store."""

    def __init__(self, fs: Fs, data_dir: Path, clock: Clock) -> None:
        self._fs, self._data_dir, self._clock = fs, data_dir, clock

    def begin_at(self, queue_offset: int) -> None:
        """Let RocketMQ read the timer topic from this offset on. Durable on return. Blocks. Raises OSError."""
        path = self._data_dir / store_layout.TIMER_CHECKPOINT
        self._fs.make_directory(path.parent)
        self._fs.write_atomic(path, timer_checkpoint.encode(queue_offset, self._clock.now_ms()))
        log, wheel = self._data_dir / store_layout.TIMER_LOG, self._data_dir / store_layout.TIMER_WHEEL
        for name in self._fs.list(log) if self._fs.is_directory(log) else ():
            self._fs.remove(log / name)
        if self._fs.exists(wheel):
            self._fs.remove(wheel)
