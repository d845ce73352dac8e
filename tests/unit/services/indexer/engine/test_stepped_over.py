# SPDX-License-Identifier: Apache-2.0
"""Notes of records that were stepped over: none is lost if there is no room for a note of its own."""

import numpy as np
import pytest

from libs.formats.state.index_progress import OTHERS, StepReason
from services.indexer.engine.tables import stepped_over
from services.indexer.engine.tables.stepped_over import SteppedOver


@pytest.mark.parametrize("last", [300, 700])
def test_queues_without_a_note_of_their_own_are_all_spoken_of(last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues of a batch that share a note are all covered, although their records lie between each other."""
    monkeypatch.setattr(stepped_over, "NOTE_COUNT_MAX", 0)
    notes = SteppedOver()
    for queue_id, places in enumerate(([100, 500], [50, last])):
        places_there = np.array(places, np.int64)
        notes.note("T", queue_id, StepReason.QUEUE_OFFSET, places_there, places_there)
    monkeypatch.undo()  # as if others had been forgotten meanwhile: a note of its own would have room now
    assert notes.has("T", 0, 100)
    assert notes.has("T", 1, 50)
    assert notes.has("T", 1, last)
    assert [(note.topic, note.queue_id) for note in notes.notes()] == [OTHERS]
