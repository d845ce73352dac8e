# SPDX-License-Identifier: Apache-2.0
"""Small files: saved values are loaded, a missing file gives defaults, damage is named."""

import re
from pathlib import Path

import pytest

from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.log.state import small_files
from libs.machine.testing.memory_fs import MemoryFs

PATH = Path("/checkpoint")


def test_a_saved_checkpoint_survives_a_power_cut() -> None:
    """RocketMQ's page of 4096 bytes, durable on return."""
    fs = MemoryFs()
    checkpoint = StoreCheckpoint(commit_log_time_ms=5_000, consume_queue_time_ms=4_000, index_time_ms=3_000)
    small_files.save_checkpoint(fs, PATH.parent, checkpoint)
    fs.crash()
    assert fs.size(PATH) == 4096
    assert small_files.load_checkpoint(fs, PATH.parent) == checkpoint


def test_a_missing_checkpoint_knows_nothing() -> None:
    """A missing checkpoint, as at the first start of a store, is read as an empty checkpoint."""
    assert small_files.load_checkpoint(MemoryFs(), PATH.parent) == StoreCheckpoint()


@pytest.mark.parametrize("data", [b"", bytes(4095)])
def test_a_short_checkpoint_is_named(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A page that is cut off is read as an empty checkpoint, and a line names the file and the right size."""
    fs = MemoryFs()
    fs.write_atomic(PATH, data)
    assert small_files.load_checkpoint(fs, PATH.parent) == StoreCheckpoint()
    assert re.search(r"/checkpoint can't be read .*4096 bytes.*nothing is known", caplog.text)
