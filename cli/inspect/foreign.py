# SPDX-License-Identifier: Apache-2.0
"""Inspection of queue files that only RocketMQ uses: queues of batches, and extensions of consume queues.

Layouts: docs/formats/consume_queue.md sections 6 and 7. Only RocketMQ can check whether a unit belongs to its record.
"""

from __future__ import annotations

from contextlib import closing

from cli.inspect.inspection import Data, Finding, Inspection, Item, Steps
from cli.verify.files import Files
from libs.formats.errors import FormatError
from libs.formats.indexes import batch_consume_queue, consume_queue_ext
from libs.formats.indexes.batch_consume_queue import UNIT_SIZE_BYTES

_PROGRESS_UNIT_COUNT = 1 << 14
_EXTENSION_END_SIZE_BYTES = len(consume_queue_ext.END_OF_FILE)


def inspect_batch_queue(data: Data, inspection: Inspection) -> Steps:
    """Yield units up to the last that is not zeros. Each must be valid and continue at the end of the unit before."""
    if len(data) % UNIT_SIZE_BYTES or not data:
        yield Finding(len(data) - len(data) % UNIT_SIZE_BYTES, "file", "size", f"{len(data)} bytes are no whole units")
    with closing(Files()) as files:
        count = -(-files.content_end(inspection.path, 0, len(data)) // UNIT_SIZE_BYTES)
    message_count = next_queue_offset = physical_end = 0
    for number in range(min(count, len(data) // UNIT_SIZE_BYTES)):
        position = number * UNIT_SIZE_BYTES
        unit = batch_consume_queue.decode_unit(data, position)
        if inspection.window.shows(number):
            yield Item("unit", number, position, unit._asdict())
        if not unit.is_valid:
            yield Finding(position, f"unit {number}", "values", "these can't be")
            continue
        if unit.base_queue_offset < next_queue_offset:
            message = f"{unit.base_queue_offset}, but the unit before it ends at {next_queue_offset}"
            yield Finding(position + 28, f"unit {number}", "queue offset", message)
        if unit.physical_offset < physical_end:
            message = f"{unit.physical_offset}, but the record before it ends at {physical_end}"
            yield Finding(position, f"unit {number}", "physical offset", message)
        message_count += unit.message_count
        next_queue_offset = unit.base_queue_offset + unit.message_count
        physical_end = unit.physical_offset + unit.record_size_bytes
        if number % _PROGRESS_UNIT_COUNT == 0:
            inspection.progress(position)
    inspection.summary.update(unit_count=count, message_count=message_count, max_queue_offset=next_queue_offset)


def inspect_extension(data: Data, inspection: Inspection) -> Steps:
    """Yield units one after the other, up to the mark of the end or zeros."""
    position = number = 0
    with closing(Files()) as files:
        end = files.content_end(inspection.path, 0, len(data))
    while position < end and data[position : position + _EXTENSION_END_SIZE_BYTES] != consume_queue_ext.END_OF_FILE:
        try:
            unit = consume_queue_ext.decode_unit(data, position)
        except FormatError as error:
            yield Finding(position, f"unit {number}", error.field, error.reason)
            break
        if inspection.window.shows(number):
            fields = {**unit._asdict(), "bitmap": unit.bitmap.hex()}
            yield Item("unit", number, position, fields)
        if number % _PROGRESS_UNIT_COUNT == 0:
            inspection.progress(position)
        position += consume_queue_ext.UNIT_SIZE_BYTES_MIN + len(unit.bitmap)
        number += 1
    inspection.summary.update(unit_count=number, end_position=position)
