# SPDX-License-Identifier: Apache-2.0
"""Versions of the JSON records that services keep in the log: the field `format` selects the decoder.

A record has the lowest format with all its events and fields, so an older program continues until the first record that
it would misunderstand. It refuses this record and never skips it: a skipped acknowledgement would be lost.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from libs.formats.errors import BadField, NewerVersion

T = TypeVar("T")


class _Head(msgspec.Struct):
    """The common field of all versions. The decoder skips all other fields."""

    format: int = 1


def decode(data: bytes, decoders: Mapping[int, type[T]], *, name: str) -> T:
    """Return the record in a JSON text, by the decoder of its format. `name` is the kind's name, for errors.

    Raises NewerVersion for a format above all of `decoders`, and BadField for all other bytes that are no record.
    """
    try:
        number = msgspec.json.decode(data, type=_Head).format
        if number > max(decoders):
            raise NewerVersion(f"the {name}", version=number, newest=max(decoders), field=name)
        if number not in decoders:
            raise BadField(position=0, reason=f"format {number}", field=name)
        return msgspec.json.decode(data, type=decoders[number])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadField(position=0, reason=str(error), field=name) from error
