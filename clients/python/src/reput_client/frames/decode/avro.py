# SPDX-License-Identifier: Apache-2.0
"""Avro: bodies that are single records in Avro's binary form, without a container."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa

from reput_client.frames.decode.decoder import Decoder

PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


class Avro(Decoder):
    """Decodes bodies that are records of an Avro schema: a dictionary, or its JSON. Needs the extra `frames-avro`.

    `skip_bytes` bytes before each record are left out: 5 for the head that a schema registry of Confluent asks for.
    A union may have null and another type. Raises ValueError for a schema that has no columns: a recursive type, a
    union of several types, and types without bytes, of which a few bytes could be any number of values.
    """

    def __init__(self, schema: Mapping[str, Any] | str, *, skip_bytes: int = 0, prefix: str = "") -> None:
        from fastavro import parse_schema, schemaless_reader

        given = json.loads(schema) if isinstance(schema, str) else dict(schema)
        row_type = _Types().of(given, "the schema", ())
        if not pa.types.is_struct(row_type):
            raise ValueError(f"the schema is {row_type}: expected a record")
        super().__init__(row_type, prefix)
        if skip_bytes < 0:
            raise ValueError(f"skip_bytes is {skip_bytes}, below 0")
        self._parsed, self._read, self._skip_bytes = parse_schema(_without_uuids(given)), schemaless_reader, skip_bytes

    def row(self, body: bytes) -> dict[str, Any]:
        """See Decoder.row."""
        if len(body) < self._skip_bytes:
            raise ValueError(f"{len(body)} bytes, of which {self._skip_bytes} are left out")
        source = BytesIO(body)
        source.seek(self._skip_bytes)
        found: Any = self._read(source, self._parsed, None)
        if rest := len(body) - source.tell():
            raise ValueError(f"{rest} bytes lie behind the record")
        return dict(found)


class _Types:
    """The Arrow types of an Avro schema, whose named types are known by their names."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}

    def of(self, schema: Any, name: str, inside: tuple[str, ...]) -> pa.DataType:
        """Return the type of a part of the schema. `inside` are the records around it. Raises ValueError."""
        if isinstance(schema, list):
            left = [one for one in schema if one != "null"]
            if len(left) != 1:
                raise ValueError(f"{name} is a union of {len(left)} types: expected null and another type")
            return self.of(left[0], name, inside)
        if isinstance(schema, str):
            return self._by_name(schema, name, inside)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, name, inside)
        found = self._complex(schema, kind, name, inside)
        if "name" in schema:
            self._named[_full_name(schema)] = self._named[schema["name"]] = found
        return found

    def _by_name(self, kind: str, name: str, inside: tuple[str, ...]) -> pa.DataType:
        if kind in inside:
            raise ValueError(f"{name} is {kind} inside of itself: a column has a fixed depth")
        found = PLAIN.get(kind) or self._named.get(kind)
        if found is None:
            raise ValueError(f"{name} is of type {kind!r}, which can't be a column")
        return found

    def _complex(self, schema: Mapping[str, Any], kind: str, name: str, inside: tuple[str, ...]) -> pa.DataType:
        logical = schema.get("logicalType", "")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if (kind, logical) in LOGICAL:
            return LOGICAL[kind, logical]
        match kind:
            case "record":
                names = (*inside, schema["name"], _full_name(schema))
                fields = [(field["name"], self.of(field["type"], field["name"], names)) for field in schema["fields"]]
                if not fields:
                    raise ValueError(f"{name} is a record without fields")
                return pa.struct(fields)
            case "array":
                return pa.list_(self.of(schema["items"], name, inside))
            case "map":
                return pa.map_(pa.string(), self.of(schema["values"], name, inside))
            case "enum":
                return pa.string()
            case "fixed" if schema["size"] > 0:
                return pa.binary(int(schema["size"]))
        return self._by_name(kind, name, inside)


def _full_name(schema: Mapping[str, Any]) -> str:
    name = str(schema["name"])
    return f"{schema['namespace']}.{name}" if schema.get("namespace") and "." not in name else name


def _without_uuids(schema: Any) -> Any:
    """Return a schema whose UUIDs are plain texts, as Arrow has them."""
    if isinstance(schema, list):
        return [_without_uuids(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    is_uuid = schema.get("logicalType") == "uuid"
    return {name: _without_uuids(one) for name, one in schema.items() if not (is_uuid and name == "logicalType")}
