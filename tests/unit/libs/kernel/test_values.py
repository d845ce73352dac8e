# SPDX-License-Identifier: Apache-2.0
"""property_values gives the values that libs.formats finds in each record's properties."""

from array import array

import numpy as np
import pytest

from libs.formats.records import properties, record
from tests.support.records import encoded
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label
from tests.unit.libs.kernel.test_arrow import some_records

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
NAMES = [b"A", b"TAGS", "имя".encode(), b"x", b"AA", b"nobody"]


def test_every_shape_of_record(build: Build) -> None:
    """Each name has a column, in the order of the names, with the stored bytes.

    Of several values of a name the last value counts.
    """
    data, positions, sizes = some_records()
    columns = build.values_cy.property_values(data, positions, sizes, NAMES)
    raws = [record.decode(data, position).properties for position in positions.tolist()]
    assert columns == [[properties.get(raw, name) for raw in raws] for name in NAMES]
    assert b"\xff" in columns[0]
    assert b"2" in columns[0]
    assert columns[5] == [None] * len(raws)


def test_no_names_and_no_records(build: Build) -> None:
    """No names or no records give an empty result."""
    data, positions, sizes = some_records()
    assert build.values_cy.property_values(data, positions, sizes, []) == []
    assert build.values_cy.property_values(data, positions[:0], sizes[:0], NAMES[:2]) == [[], []]


def test_damaged_records_are_named(build: Build) -> None:
    """A record that is not whole, or not of its listed size, stops the call with its position; nothing is over-read."""
    good = encoded(7)
    room = Guarded(4096)
    for cut in range(len(good)):
        with pytest.raises(ValueError, match="position 0"):
            build.values_cy.property_values(room.hold(good[:cut]), array("q", [0]), array("i", [len(good)]), [b"A"])
    held = room.hold(good + good)
    for place, size in ((1, len(good)), (len(good), len(good) - 1), (-1, len(good)), (0, -1), (0, 0), (2**62, 9)):
        with pytest.raises(ValueError, match=f"position {place}"):
            build.values_cy.property_values(held, array("q", [place]), array("i", [size]), [b"A"])
    with pytest.raises(ValueError, match="lengths"):
        build.values_cy.property_values(held, np.zeros(2, np.int64), np.zeros(1, np.int32), [b"A"])
