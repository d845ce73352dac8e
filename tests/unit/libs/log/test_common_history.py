# SPDX-License-Identifier: Apache-2.0
"""The common end of a follower's history and the log's history."""

import random

import pytest

from libs.formats.epoch import Epoch
from libs.log.common_history import assumed, common_end

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
    """A follower that knows its last epoch keeps all bytes that the log has, too, and no byte that may differ."""
    assert common_end(epochs, max_offset, assumed(epochs, follower_epoch), follower_offset) == expected


@pytest.mark.parametrize(
    ("epochs", "end", "theirs", "their_end", "expected"),
    [
        pytest.param(THREE, 2000, THREE, 1700, 1700, id="the same table"),
        pytest.param(THREE, 1600, THREE, 1700, 1600, id="the same table, and the log lost its tail"),
        pytest.param([Epoch(1, 0), Epoch(2, 400)], 900, [Epoch(1, 0), Epoch(2, 500)], 600, 400, id="a restored copy"),
        pytest.param([Epoch(1, 0), Epoch(2, 500)], 900, [Epoch(1, 0), Epoch(2, 400)], 450, 400, id="the other way"),
        pytest.param(THREE, 2000, [Epoch(1, 0), Epoch(2, 1000), Epoch(4, 1300)], 1700, 1300, id="two went on from one"),
        pytest.param(THREE, 2000, [Epoch(1, 0), Epoch(4, 700)], 1700, 700, id="two went on, long ago"),
        pytest.param(TRIMMED, 9000, [*THREE, Epoch(4, 5000)], 6000, 6000, id="older ones are gone"),
        pytest.param(TRIMMED, 9000, [*THREE, Epoch(4, 4000)], 6000, 0, id="older ones are gone, and the next differs"),
        pytest.param(TRIMMED, 9000, THREE, 6000, 5000, id="only older ones"),
        pytest.param(THREE, 2000, TRIMMED, 8000, 0, id="only newer ones"),
        pytest.param(THREE, 2000, [], 700, 0, id="no table"),
    ],
)
def test_tables(epochs: list[Epoch], end: int, theirs: list[Epoch], their_end: int, expected: int) -> None:
    """With all epochs an epoch number that was used twice is noticed, as by a log restored from a copy."""
    assert common_end(epochs, end, theirs, their_end) == expected


class Logs:
    """Three logs of a shared history, of which a single log writes in each epoch.

    Bytes are numbers that never repeat.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.bytes: list[list[int]] = [[], [], []]
        self.tables: list[list[Epoch]] = [[], [], []]
        self.leader = -1
        self.epoch = 0
        self.written = 0

    def lead(self) -> None:
        """Let a log begin an epoch."""
        self.leader = self.chance.randrange(3)
        self.epoch += 1
        self.tables[self.leader].append(Epoch(self.epoch, len(self.bytes[self.leader])))

    def write(self) -> None:
        """Add some bytes."""
        count = self.chance.randrange(1, 4)
        self.bytes[self.leader] += range(self.written, self.written + count)
        self.written += count

    def lose(self) -> None:
        """Remove the end of the bytes that the writer wrote in its epoch; then a log begins another epoch."""
        kept = self.chance.randint(self.tables[self.leader][-1].start_physical_offset, len(self.bytes[self.leader]))
        del self.bytes[self.leader][kept:]
        self.lead()

    def follow(self) -> None:
        """Let another log drop the bytes that it has alone, and copy a part of the bytes that it lacks."""
        follower = self.chance.choice([number for number in range(3) if number != self.leader])
        mine, theirs = self.bytes[self.leader], self.bytes[follower]
        end = common_end(self.tables[self.leader], len(mine), self.tables[follower], len(theirs))
        equal = next((at for at, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
        assert end == (min(len(mine), len(theirs)) if equal is None else equal)
        copied = self.chance.randint(end, len(mine))
        self.bytes[follower] = mine[:copied]
        begun = [one for one in self.tables[self.leader] if one[1] < copied or copied == len(mine)]
        kept = [one for one in self.tables[follower] if one[1] < end or one in begun]
        self.tables[follower] = sorted({*kept, *begun})


def test_the_common_end_is_the_longest_common_prefix(subtests: pytest.Subtests) -> None:
    """After any writes, losses and copies of three logs the common end is the exact length of the common prefix."""
    for seed in range(300):
        chance = random.Random(seed)
        logs = Logs(chance)
        with subtests.test(f"seed {seed}"):
            logs.lead()
            for _ in range(30):
                chance.choice([logs.lead, logs.write, logs.write, logs.write, logs.lose, logs.follow, logs.follow])()
