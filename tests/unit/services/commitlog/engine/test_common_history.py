# SPDX-License-Identifier: Apache-2.0
"""Where a follower's history and the log's agree."""

import pytest

from libs.formats.state.epoch_file import Epoch
from services.commitlog.engine.follow.common_history import common_end

ONE = [Epoch(1, 0)]
THREE = [Epoch(1, 0), Epoch(2, 1000), Epoch(3, 1500)]
TRIMMED = [Epoch(4, 5000), Epoch(5, 7000)]
EMPTY_EPOCH = [Epoch(1, 0), Epoch(2, 800), Epoch(3, 800)]


@pytest.mark.parametrize(
    ("epochs", "max_offset", "follower_epoch", "follower_offset", "expected"),
    [
        pytest.param(ONE, 900, 1, 0, 0, id="new follower"),
        pytest.param(ONE, 900, 1, 500, 500, id="same epoch, behind"),
        pytest.param(ONE, 900, 1, 900, 900, id="same epoch, at the end"),
        pytest.param(ONE, 900, 1, 901, 900, id="same epoch, ahead of a log that lost its tail"),
        pytest.param(ONE, 900, 0, 400, 400, id="no epoch known, one epoch in the log"),
        pytest.param(THREE, 2000, 0, 1700, 1000, id="no epoch known counts as the first"),
        pytest.param(THREE, 2000, 1, 400, 400, id="old epoch, behind the split"),
        pytest.param(THREE, 2000, 1, 1000, 1000, id="old epoch, exactly at the split"),
        pytest.param(THREE, 2000, 1, 1800, 1000, id="old epoch, beyond the split"),
        pytest.param(THREE, 2000, 2, 1600, 1500, id="middle epoch, beyond its end"),
        pytest.param(THREE, 2000, 3, 1600, 1600, id="current epoch"),
        pytest.param(THREE, 2000, 4, 1600, 0, id="epoch that the log never had"),
        pytest.param(THREE, 1400, 3, 1600, 1400, id="never beyond the log's end"),
        pytest.param(TRIMMED, 9000, 2, 6000, 5000, id="epoch that was trimmed away"),
        pytest.param(TRIMMED, 9000, 2, 3000, 3000, id="epoch that was trimmed away, far behind"),
        pytest.param(TRIMMED, 9000, 0, 6000, 6000, id="no epoch known, trimmed log"),
        pytest.param(EMPTY_EPOCH, 900, 2, 850, 800, id="epoch that wrote nothing that is left"),
        pytest.param(EMPTY_EPOCH, 900, 1, 850, 800, id="epoch before an empty one"),
    ],
)
def test_common_end(
    epochs: list[Epoch], max_offset: int, follower_epoch: int, follower_offset: int, expected: int
) -> None:
    """A follower keeps all that the log has too, and nothing that the log may have in another form."""
    end = common_end(
        epochs,
        max_physical_offset=max_offset,
        follower_epoch=follower_epoch,
        follower_physical_offset=follower_offset,
    )
    assert end == expected
