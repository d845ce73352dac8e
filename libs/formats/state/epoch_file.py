# SPDX-License-Identifier: Apache-2.0
"""Epoch file: the epochs of a log, with the part that each epoch wrote. Spec: docs/formats/epoch_file.md.

Text: the number of epochs, the masked CRC-32 of the remaining text, then a line `number-startOffset` per epoch. Every
line ends with a newline. Numbers and offsets only grow.
"""

import itertools
import re
from collections.abc import Sequence

from libs.formats.crc import body_crc
from libs.formats.epoch import Epoch
from libs.formats.errors import BadChecksum, BadField, BadLength, Truncated
from libs.formats.limits import INT32_MAX, INT64_MAX

_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_LINE = re.compile(r"([0-9]{1,10})-([0-9]{1,19})", re.ASCII)


def encode(epochs: Sequence[Epoch]) -> bytes:
    """Return the whole file. Numbers ascend strictly, start offsets do not descend."""
    for earlier, later in itertools.pairwise(epochs):
        assert earlier.number < later.number
        assert earlier.start_physical_offset <= later.start_physical_offset
    lines = "".join(f"{epoch.number}-{epoch.start_physical_offset}\n" for epoch in epochs)
    return f"{len(epochs)}\n{body_crc(lines.encode())}\n{lines}".encode()


def decode(data: bytes) -> list[Epoch]:
    """Return the epochs in order. Raises Truncated, BadField, BadChecksum or BadLength."""
    count_text, first_newline, rest = data.partition(b"\n")
    crc_text, second_newline, lines = rest.partition(b"\n")
    if not first_newline or not second_newline:
        raise Truncated(position=len(data), reason="an epoch file has two lines and more")
    count = _number(count_text, 0, "count")
    lines_at = len(data) - len(lines)
    stored_crc = _number(crc_text, len(count_text) + 1, "crc")
    if stored_crc != body_crc(lines):
        reason = f"the stored CRC is {stored_crc}, the lines have {body_crc(lines)}"
        raise BadChecksum(position=lines_at, reason=reason)
    epochs = _epochs(lines, lines_at)
    if len(epochs) != count:
        raise BadLength(position=0, reason=f"{count} epochs announced, {len(epochs)} found", field="count")
    return epochs


def _number(text: bytes, position: int, field: str) -> int:
    decoded = text.decode("ascii", "replace")
    if not _NUMBER.fullmatch(decoded):
        raise BadField(position=position, reason=f"{decoded[:20]!r} is not a number", field=field)
    return int(decoded)


def _epochs(lines: bytes, position: int) -> list[Epoch]:
    epochs: list[Epoch] = []
    for line in lines.decode("ascii", "replace").removesuffix("\n").split("\n") if lines else []:
        match = _LINE.fullmatch(line)
        epoch = Epoch(int(match[1]), int(match[2])) if match else Epoch(INT32_MAX + 1, 0)
        if epoch.number > INT32_MAX or epoch.start_physical_offset > INT64_MAX:
            raise BadField(position=position, reason=f"{line[:40]!r} is not number-offset", field="epoch")
        if epochs and (epoch.number <= epochs[-1].number or epoch.start_physical_offset < epochs[-1][1]):
            raise BadField(position=position, reason=f"{line!r} does not follow the line before it", field="epoch")
        epochs.append(epoch)
        position += len(line) + 1
    return epochs
