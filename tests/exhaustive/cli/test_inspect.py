# SPDX-License-Identifier: Apache-2.0
"""Inspection of a segment: every flipped byte of a record is named."""

from pathlib import Path

import pytest

from cli.inspect.damage import fields_of
from libs.formats.records import record
from tests.support.frame_cases import flipped
from tests.support.inspections import BASE, findings_of, good_segment, segment_path


@pytest.mark.slow
@pytest.mark.parametrize(("end", "bits"), [("blank", 0x01), ("unwritten", 0x80), ("exact", 0xFF)])
def test_every_flipped_byte_names_its_record_and_field(tmp_path: Path, end: str, bits: int) -> None:
    """With the CRC property each flipped byte of a record gives a single finding.

    The finding has the record and the field.
    """
    data, starts = good_segment(end=end)
    path = segment_path(tmp_path, data)
    for number, start in enumerate(starts):
        shape = record.check_header(data, start)
        for field, field_start, field_end in fields_of(shape):
            for position in range(field_start, field_end):
                path.write_bytes(flipped(data, position, bits))
                found = findings_of(path)
                what = f"{field} at {position - start}: {found}"
                assert len(found) == 1, what
                assert found[0].item == f"record {number} at physical offset {BASE + start}", what
                assert found[0].field == field, what


def test_flips_without_crc_property_are_named_as_far_as_they_show(tmp_path: Path) -> None:
    """Without the CRC property, lengths, magic, offset and body are named; nothing is named wrongly."""
    data, starts = good_segment(end="blank", crc_property=False)
    path = segment_path(tmp_path, data)
    named = {"total size", "magic", "body CRC", "physical offset", "body size", "body", "topic size", "properties size"}
    for number, start in enumerate(starts):
        shape = record.check_header(data, start)
        fields = [field for field in fields_of(shape) if field[0] not in ("properties", "CRC property")]
        for field, field_start, field_end in (*fields, ("properties", shape.properties_at, shape.end)):
            for position in range(field_start, field_end):
                path.write_bytes(flipped(data, position, 0x81))
                found = findings_of(path)
                what = f"{field} at {position - start}: {found}"
                assert len(found) == 1 or (field not in named and len(found) == 0) or field == "store time", what
                if found and field != "store time":
                    assert f"record {number} " in found[0].item, what
                    assert field in found[0].field, what
