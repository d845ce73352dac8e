# SPDX-License-Identifier: Apache-2.0
"""Json: bodies that are JSON objects.

msgspec parses and checks each body alone. pyarrow's own JSON reader takes lines of a block: a body with a line break,
or with half an object, would move the bodies behind it into other rows, and the first bad one ends it.
"""

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pyarrow as pa
import pyarrow.types as kinds

from reput_client.frames.decode.decoder import Decoder


class Json(Decoder):
    """Decodes bodies that are JSON objects with these fields. Needs the extra `frames-json`.

    A field that is missing or null is null, and other fields are left out. A value of another type makes a bad row, as
    does anything but a single object. Times are texts as of RFC 3339, bytes are Base64.
    Raises ValueError for a type that JSON does not have.
    """

    def __init__(self, schema: pa.Schema | Mapping[str, pa.DataType], *, prefix: str = "") -> None:
        import msgspec

        row_type = pa.struct(list(schema.items() if isinstance(schema, Mapping) else schema))
        super().__init__(row_type, prefix)
        self._parse = msgspec.json.Decoder(_python_type(row_type, "the schema")).decode

    def row(self, body: bytes) -> dict[str, Any]:
        """See Decoder.row."""
        found: dict[str, Any] = self._parse(body)
        return found


def _python_type(kind: Any, name: str) -> Any:
    """Return the type that msgspec checks for. Raises ValueError."""
    import msgspec

    if kinds.is_struct(kind):
        fields = {field.name: _python_type(field.type, field.name) | None for field in kind}
        return TypedDict("Row", fields, total=False)  # type: ignore[operator]
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return list[_python_type(kind.value_type, name) | None]  # type: ignore[misc]
    if kinds.is_map(kind) and kinds.is_string(kind.key_type):
        return dict[str, _python_type(kind.item_type, name) | None]  # type: ignore[misc]
    if kinds.is_timestamp(kind):
        return Annotated[datetime, msgspec.Meta(tz=kind.tz is not None)]
    for is_kind, python_type in (
        (kinds.is_boolean, bool),
        (kinds.is_integer, int),
        (kinds.is_floating, float),
        (kinds.is_string, str),
        (kinds.is_large_string, str),
        (kinds.is_binary, bytes),
        (kinds.is_large_binary, bytes),
        (kinds.is_date32, date),
        (kinds.is_time, time),
        (kinds.is_decimal, Decimal),
    ):
        if is_kind(kind):
            return python_type
    raise ValueError(f"{name} is {kind}: JSON has no such values")
