# SPDX-License-Identifier: Apache-2.0
"""The epochs of the log and their file."""

import pytest

from libs.formats import store_layout
from libs.formats.epoch import Epoch
from libs.formats.state import epoch_file
from libs.machine.testing.memory_fs import MemoryFs
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.errors import EpochsDamaged
from tests.support.commitlog import DATA_DIR


@pytest.fixture
def fs() -> MemoryFs:
    """A disk with an empty store."""
    memory = MemoryFs()
    memory.make_directory(DATA_DIR)
    return memory


def test_a_change_is_durable_before_it_counts(fs: MemoryFs) -> None:
    """An epoch survives a power cut as soon as `begin` has returned."""
    history = EpochHistory.open(fs, DATA_DIR)
    assert history.number == 0
    history.begin(0)
    history.begin(700)
    fs.crash()
    assert EpochHistory.open(fs, DATA_DIR).epochs == [Epoch(1, 0), Epoch(2, 700)]


def test_an_epoch_that_lost_its_records_keeps_its_number(fs: MemoryFs) -> None:
    """A log that was cut below an epoch's start keeps that epoch, as an epoch without records."""
    history = EpochHistory.open(fs, DATA_DIR)
    history.begin(0)
    history.begin(700)
    history.begin(300)
    assert history.epochs == [Epoch(1, 0), Epoch(2, 300), Epoch(3, 300)]


def test_an_epoch_is_newer_than_what_was_promised(fs: MemoryFs) -> None:
    """A new epoch is newer than a promised epoch, even if the file does not have the promised epoch."""
    history = EpochHistory.open(fs, DATA_DIR)
    history.begin(0)
    history.begin(10, promised_epoch=7)
    history.begin(20, promised_epoch=7)
    assert [number for number, _ in history.epochs] == [1, 8, 9]


def test_trim_keeps_the_epoch_of_the_first_record(fs: MemoryFs) -> None:
    """Only epochs without any record are removed."""
    history = EpochHistory.open(fs, DATA_DIR)
    for start in (0, 100, 200, 300):
        history.begin(start)
    history.trim(250)
    assert history.epochs == [Epoch(3, 200), Epoch(4, 300)]
    history.trim(10_000)
    assert history.epochs == [Epoch(4, 300)]
    assert EpochHistory.open(fs, DATA_DIR).epochs == [Epoch(4, 300)]


def test_a_damaged_file_is_not_taken_for_an_empty_one(fs: MemoryFs) -> None:
    """A damaged file is an error, and not the beginning of epoch 1.

    Otherwise followers would keep records that the log does not have.
    """
    data = epoch_file.encode([Epoch(1, 0), Epoch(2, 9)]).replace(b"2-9", b"2-8")
    fs.write_atomic(DATA_DIR / store_layout.EPOCHS, data)
    with pytest.raises(EpochsDamaged, match=f"{store_layout.EPOCHS}: .*CRC.* remove it") as caught:
        EpochHistory.open(fs, DATA_DIR)
    assert "\n" not in str(caught.value)


def test_a_history_keeps_its_name(fs: MemoryFs) -> None:
    """The name stays from the first epoch on, over restarts.

    A log that lost its epochs begins with epoch 1 under another name.
    """
    history = EpochHistory.open(fs, DATA_DIR)
    assert history.history_id == ""
    history.begin(0)
    name = history.history_id
    assert len(name) == 32
    history.begin(100)
    assert EpochHistory.open(fs, DATA_DIR).history_id == history.history_id == name
    fs.remove(DATA_DIR / store_layout.EPOCHS)
    anew = EpochHistory.open(fs, DATA_DIR)
    anew.begin(0)
    assert anew.history_id not in ("", name)


@pytest.mark.parametrize("loss", ["missing", "damaged"])
def test_a_history_whose_name_is_lost(fs: MemoryFs, loss: str) -> None:
    """The epochs continue; the name stays unknown, because another name would cost every Indexer its indexes."""
    EpochHistory.open(fs, DATA_DIR).begin(0)
    if loss == "missing":
        fs.remove(DATA_DIR / store_layout.HISTORY)
    else:
        fs.write_atomic(DATA_DIR / store_layout.HISTORY, b"?")
    history = EpochHistory.open(fs, DATA_DIR)
    assert (history.number, history.history_id) == (1, "")
    history.begin(50)
    assert history.history_id == ""
