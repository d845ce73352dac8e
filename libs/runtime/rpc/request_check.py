# SPDX-License-Identifier: Apache-2.0
"""Checks requests before they are parsed: size, number of values, and whether they are messages of their type.

Parsing creates an object for each part, and all calls wait meanwhile. So a request that is too large is refused before
it is parsed. The kernel counts the values in a single pass, which ends at the first value beyond the limit.
"""

from array import array
from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from libs.kernel import layout
from libs.kernel.append import request_cy
from libs.requests.errors import MalformedRequest
from libs.runtime.rpc.errors import RequestTooLarge


class RequestLimits(Struct, frozen=True):
    """The limits of a request of a method: bytes, and values (fields, and elements of repeated fields)."""

    size_bytes_max: int = 128 << 10
    value_count_max: int = 1_000


DEFAULT_LIMITS = RequestLimits()
"""The limits of methods without lists in their requests. The longest texts are an expression of tags, an id and a page
token."""

Limits = Mapping[str, RequestLimits]
"""Maps the name of a method to its limits; other methods have DEFAULT_LIMITS."""

_KINDS = {
    FieldDescriptor.TYPE_FIXED64: layout.KIND_FIXED64,
    FieldDescriptor.TYPE_SFIXED64: layout.KIND_FIXED64,
    FieldDescriptor.TYPE_DOUBLE: layout.KIND_FIXED64,
    FieldDescriptor.TYPE_FIXED32: layout.KIND_FIXED32,
    FieldDescriptor.TYPE_SFIXED32: layout.KIND_FIXED32,
    FieldDescriptor.TYPE_FLOAT: layout.KIND_FIXED32,
    FieldDescriptor.TYPE_STRING: layout.KIND_BYTES,
    FieldDescriptor.TYPE_BYTES: layout.KIND_BYTES,
}
"""The kinds of scalar fields; all other scalar fields are varints."""


class RequestParser:
    """The parser of the requests of a type."""

    def __init__(self, message_type: Descriptor, limits: RequestLimits) -> None:
        self._limits = limits
        self._name = message_type.full_name
        self._from_string = GetMessageClass(message_type).FromString
        self._types, self._kinds = _tables(message_type)

    def parse(self, data: bytes) -> Message:
        """Return the message. Raises RequestTooLarge before the bytes are parsed, and MalformedRequest."""
        if len(data) > self._limits.size_bytes_max:
            raise RequestTooLarge("bytes", value=len(data), limit=self._limits.size_bytes_max)
        value_count_max = self._limits.value_count_max
        count = request_cy.count_values(data, self._types, self._kinds, value_count_max)
        if count == layout.R_TOO_MANY:
            raise RequestTooLarge("values", value=value_count_max + 1, limit=value_count_max)
        if count < 0:
            raise MalformedRequest(f"not a valid {self._name}")
        try:
            return self._from_string(data)
        except DecodeError as error:
            raise MalformedRequest(f"not a valid {self._name}") from error


def _tables(message_type: Descriptor) -> tuple["array[int]", "array[int]"]:
    """Return the message type and the types of its fields, in the format of the kernel."""
    numbers = {message_type.full_name: 0}
    found = [message_type]
    types, kinds = array("i"), array("i")
    for described in found:  # the list grows meanwhile
        fields = described.fields_by_number
        types.extend((len(kinds), max(fields, default=0)))
        for number in range(types[-1] + 1):
            field = fields.get(number)
            if field is not None and field.message_type is not None and field.message_type.full_name not in numbers:
                numbers[field.message_type.full_name] = len(found)
                found.append(field.message_type)
            kinds.append(layout.KIND_UNKNOWN if field is None else _kind(field, numbers))
    return types, kinds


def _kind(field: FieldDescriptor, numbers: Mapping[str, int]) -> int:
    if field.message_type is not None:
        return layout.KIND_MESSAGE + numbers[field.message_type.full_name]
    kind = _KINDS.get(field.type, layout.KIND_VARINT)
    return kind + layout.KIND_PACKED if field.is_repeated and kind != layout.KIND_BYTES else kind
