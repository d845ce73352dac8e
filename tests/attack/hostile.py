# SPDX-License-Identifier: Apache-2.0
"""Hostile requests for every method there is, made from the descriptors, so that a new method is attacked as well.

A request is random bytes, a message with values at and beyond every edge, such a message harmed, or a message of
thousands of parts. Methods of operators get no request that could be meant: their requests never parse.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator
from dataclasses import dataclass

import reput.commitlog.v1
import reput.delivery.v1
import reput.indexer.v1
import reput.janitor.v1
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from reput.common.v1 import audit_service_pb2, connection_service_pb2

from libs.formats.protobuf_wire import length_delimited, varint
from libs.runtime.trust.roles import ROLES, Role
from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2

KEPT = "kept"
"""Topic and group of data that has to stay as it is: requests that change things never name it."""

READING = ("Get", "List", "Pull", "Subscribe", "Query", "Plan", "Scan", "Read", "Stream", "Dispatch", "Check", "Watch")
"""First words of methods that change nothing with any request."""

HARMLESS = ("UpdateTopic", "DeleteTopic", "PurgeTopic", "ListLines", "ListConnections", "ReadState")
"""Methods of operators that change nothing, or nothing of topics that a request does not name."""

NUMBERS = (
    0, 1, 2, 3, 7, 100, 4_096, 65_535, 65_536, 100_000, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**53, 2**63 - 1,
    -1, -2, -(2**31), -(2**63), 253_402_300_799, 253_402_300_800, -62_135_596_801, 999_999_999, 1_000_000_000,
)  # fmt: skip
TEXTS = (
    "", "x", "*", "a||b", "||", "TAGS", "..", "../../etc/passwd", "/", "a b", "a\0b", "a\x01b\x02", "\x1b[31m", "数据",
    "t@g", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "U:x", "t" * 127, "t" * 128, "t" * 256, "true",
    "x" * 9_000, "7F0000010000" + "0" * 20, "0" * 32, "f" * 56, "AQIDBA", "lz4", "body", "9" * 5_000, "-1",
)  # fmt: skip
PART_COUNT_MAX = 4
DEPTH_MAX = 5
MANY = 20_000
RANDOM_BYTES_MAX = 200
MANY_SHARE = 0.005


@dataclass(frozen=True)
class Target:
    """A method and the service that has it."""

    service: str
    method: MethodDescriptor
    served_as: str = ""
    """The gateway's name of its service; other services have the name in their protos."""

    @property
    def path(self) -> str:
        """As gRPC calls it."""
        return f"/{self.served_as or self.method.containing_service.full_name}/{self.method.name}"

    @property
    def is_operators(self) -> bool:
        """Whether a well-formed request may change anything."""
        return ROLES.get(self.path, Role.CLIENT) is not Role.CLIENT and self.method.name not in HARMLESS

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing. Clients of the gateway make a topic by asking where it is."""
        return self.method.name.startswith(READING) and not self.is_operators and not self.served_as


def targets() -> list[Target]:
    """Every method of every service of ours, and health and reflection of each."""
    found = []
    for package in (reput.commitlog.v1, reput.delivery.v1, reput.indexer.v1, reput.janitor.v1):
        service = package.__name__.split(".")[1]
        names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
        modules = [importlib.import_module(name) for name in names if name.endswith("_pb2")]
        modules += [health_pb2, reflection_pb2]
        found += [Target(service, method) for module in modules for method in _methods(module.DESCRIPTOR)]
    of_each_service = [
        Target(service, method)
        for service in ("commitlog", "indexer", "janitor", "delivery", "gateway")
        for file in (audit_service_pb2, connection_service_pb2)
        for method in _methods(file.DESCRIPTOR)
    ]
    found += of_each_service
    found += [Target("gateway", method, SERVED_AS) for method in _methods(messaging_pb2.DESCRIPTOR)]
    found += [
        Target("gateway", method) for module in (health_pb2, reflection_pb2) for method in _methods(module.DESCRIPTOR)
    ]
    return found


def _methods(file: object) -> Iterator[MethodDescriptor]:
    services: dict[str, ServiceDescriptor] = file.services_by_name  # type: ignore[attr-defined]
    for service in services.values():
        yield from service.methods


class Maker:
    """Requests by chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def request(self, target: Target) -> bytes:
        """A hostile request for a method."""
        while True:
            raw = self._request(target)
            if not target.is_operators or not is_well_formed(target.method, raw):
                return raw

    def _request(self, target: Target) -> bytes:
        chance = self._chance
        kind = chance.random()
        if kind < MANY_SHARE:
            return self._many(target)
        if kind < 0.2:
            return chance.randbytes(chance.randrange(RANDOM_BYTES_MAX))
        names_kept = target.is_reading
        message = self._message(GetMessageClass(target.method.input_type), names_kept=names_kept, depth=0)
        raw = message.SerializePartialToString()
        return raw if kind < 0.6 else self._harmed(raw)

    def _message(self, kind: type[Message], *, names_kept: bool, depth: int) -> Message:
        message = kind()
        for field in kind.DESCRIPTOR.fields:
            if self._chance.random() < 0.7 and depth < DEPTH_MAX:
                self._fill(message, field, names_kept=names_kept, depth=depth)
        return message

    def _fill(self, message: Message, field: FieldDescriptor, *, names_kept: bool, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(self._chance.randrange(PART_COUNT_MAX)):
                getattr(message, field.name)[self._text(names_kept=names_kept)] = self._text(names_kept=names_kept)
        elif field.message_type is not None:
            kind = GetMessageClass(field.message_type)
            if field.is_repeated:
                count = self._chance.randrange(PART_COUNT_MAX)
                parts = [self._message(kind, names_kept=names_kept, depth=depth + 1) for _ in range(count)]
                getattr(message, field.name).extend(parts)
            else:
                getattr(message, field.name).CopyFrom(self._message(kind, names_kept=names_kept, depth=depth + 1))
        elif field.is_repeated:
            count = self._chance.randrange(PART_COUNT_MAX)
            getattr(message, field.name).extend([self._value(field, names_kept=names_kept) for _ in range(count)])
        else:
            setattr(message, field.name, self._value(field, names_kept=names_kept))

    def _value(self, field: FieldDescriptor, *, names_kept: bool) -> object:
        chance = self._chance
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            text = self._text(names_kept=names_kept)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return chance.choice((0.0, 1.0, -1.0, float("nan"), float("inf"), 1e308))
        number = chance.choice(NUMBERS) if chance.random() < 0.8 else chance.randrange(2_000)
        bits = 32 if field.cpp_type in _NARROW else 64
        is_signed = field.cpp_type not in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
        return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) if is_signed else number % (1 << bits)

    def _text(self, *, names_kept: bool) -> str:
        return KEPT if names_kept and self._chance.random() < 0.5 else self._chance.choice(TEXTS)

    def _harmed(self, raw: bytes) -> bytes:
        """Bits turned, parts cut out, doubled, put in."""
        data, chance = bytearray(raw), self._chance
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data) + 1)
            match chance.randrange(5):
                case 0 if place < len(data):
                    data[place] ^= 1 << chance.randrange(8)
                case 1:
                    del data[place:]
                case 2:
                    data[place:place] = chance.randbytes(chance.randrange(8))
                case 3:
                    data[place:place] = data[: chance.randrange(len(data) + 1)]
                case _:
                    data += self._unknown()
        return bytes(data)

    def _unknown(self) -> bytes:
        """An unknown field, or a known number with some wire type."""
        number = self._chance.choice((1, 2, 3, 4, 15, 16, 900, 2**29 - 1))
        match self._chance.randrange(4):
            case 0:
                return _tag(number, 0) + varint(self._chance.getrandbits(64))
            case 1:
                return length_delimited(number, self._chance.randbytes(self._chance.randrange(40)))
            case 2:
                return _tag(number, 3) * self._chance.randrange(1, 200)  # groups without an end
            case _:
                return _tag(number, self._chance.choice((1, 5, 6, 7))) + self._chance.randbytes(8)

    def _many(self, target: Target) -> bytes:
        """Thousands of the same part."""
        fields = target.method.input_type.fields
        number = self._chance.choice(fields).number if fields else 1
        part = self._chance.choice((b"", b"\0", KEPT.encode() if target.is_reading else b"x", self._unknown()))
        return length_delimited(number, part) * self._chance.randrange(1, MANY)


_NARROW = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_ENUM)


def _tag(number: int, wire_type: int) -> bytes:
    """Also with wire types that there are not."""
    return varint(number << 3 | wire_type)


def is_well_formed(method: MethodDescriptor, raw: bytes) -> bool:
    """Whether a request parses, so that a client could have meant it."""
    try:
        GetMessageClass(method.input_type).FromString(raw)
    except DecodeError:
        return False
    return True
