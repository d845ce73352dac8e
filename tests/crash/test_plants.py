# SPDX-License-Identifier: Apache-2.0
"""That the bugs can still be planted, and that the simulated cluster catches a bug. All of them: make crash-planted."""

import pytest

from tests.crash.plant import Plant
from tests.crash.planted import PLANTS, ROOT, seek
from tests.crash.process_plants import Planted
from tests.crash.rounds import planted as rounds
from tests.crash.shards import planted as shards


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.part}: {plant.name}")
def test_a_plant_applies(plant: Plant) -> None:
    """Each text that is to be replaced is in its file, once."""
    for change in plant.changes:
        before, after = change.texts(ROOT)
        assert before != after


@pytest.mark.parametrize("planted", [*rounds.PLANTS, *shards.PLANTS], ids=lambda planted: planted.name)
def test_a_plant_for_processes_applies(planted: Planted) -> None:
    """The text that is replaced is in its file, once."""
    assert (ROOT / planted.path).read_text().count(planted.old) == 1


def test_names_differ() -> None:
    """A plant is asked for by its name."""
    names = [(plant.part, plant.name) for plant in PLANTS]
    assert len(set(names)) == len(names)


@pytest.mark.crash
@pytest.mark.slow
def test_the_simulated_cluster_catches_a_plant() -> None:
    """A follower that acknowledges before its sync is caught by its disk's contents, in a copy.

    Nothing is found without the plant.
    """
    plant = next(each for each in PLANTS if (each.part, each.name) == ("cluster", "acknowledge before the sync"))
    seeds = [range(plant.seed, plant.seed + 1)]
    assert "its disk has not all of that" in seek(ROOT, "cluster", plant, seeds).what
    assert seek(ROOT, "cluster", None, seeds).seed is None
