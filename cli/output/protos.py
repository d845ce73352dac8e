# SPDX-License-Identifier: Apache-2.0
"""Answers of the services as plain values, for JSON and tables."""

from typing import Any

from google.protobuf.message import Message as Protobuf
from google.protobuf.timestamp_pb2 import Timestamp

from cli.output.moments import time_text


def plain(message: Protobuf) -> dict[str, object]:
    """Return a message's fields by name: times as text, enums without their prefix, None if not set."""
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Protobuf, field: Any) -> object:
    value = getattr(message, field.name)
    if field.is_repeated:
        return [plain(item) if isinstance(item, Protobuf) else item for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        return field.enum_type.values_by_number[value].name.removeprefix(prefix)
    if isinstance(value, Timestamp):
        return time_text(value.ToMilliseconds())
    return plain(value) if isinstance(value, Protobuf) else value
