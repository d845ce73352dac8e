# SPDX-License-Identifier: Apache-2.0
"""Line: an audit line as JSON, and the names of the resources of a request.

A line never has bodies, tokens, keys or properties: of a request only fields of NAMES are read. Control characters and
line ends of names are escaped as JSON has them, and every text is cut, so a name can't forge a line or fill the disk.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NAMES: Mapping[str, str] = {
    "topic": "topics", "topics": "topics", "group": "groups", "groups": "groups", "queue_id": "queues",
    "queue_ids": "queues", "deleted_groups": "groups",
}  # fmt: skip
"""The fields of requests that name a resource, and the list of a line that has their values."""
TOPIC_SERVICE: Final = "TopicService"
"""The service whose field `name` is a topic."""

TEXT_LENGTH_MAX = 300
"""Maximum number of characters of a text of a line."""
NAME_COUNT_MAX = 10
"""Maximum number of names in a list of a line."""
DEPTH_MAX = 3
LINE_SIZE_BYTES_MAX = 8 << 10
"""Above this size a line leaves out the values before and after."""

CALL, REFUSAL, REPEATED = "call", "refusal", "repeated"
"""The kinds of lines: an administrative call, a refused call, and a count of calls that were alike."""

Value = Message | Mapping[str, Any] | None


class Line(NamedTuple):
    """An audit line. docs/audit.md describes the fields."""

    time: str
    service: str
    event: str
    subject: str
    address: str
    method: str
    code: str
    reason: str = ""
    text: str = ""
    resources: Mapping[str, list[str | int]] = {}
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    call_count: int = 1
    addresses: tuple[str, ...] = ()
    on_behalf_of: str = ""
    """For whom the caller says that it calls."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of the line in order, without empty fields."""
        found: dict[str, Any] = {
            "time": self.time,
            "service": self.service,
            "event": self.event,
            "subject": cut(self.subject),
            "address": cut(self.address),
            "on_behalf_of": cut(self.on_behalf_of),
            "method": cut(self.method),
            **self.resources,
            "code": self.code,
            "reason": cut(self.reason),
            "text": cut(self.text),
            "before": self.before,
            "after": self.after,
        }
        if self.event == REPEATED:
            found |= {"count": self.call_count, "addresses": list(self.addresses)}
        return {name: value for name, value in found.items() if value not in ("", None, [])}

    def encode(self) -> str:
        """Return the line as JSON of ASCII characters, without the end of the line."""
        text = _json(self.fields())
        if len(text) > LINE_SIZE_BYTES_MAX:
            text = _json({**self._replace(before=None, after=None).fields(), "is_cut": True})
        return text

    @property
    def sentence(self) -> str:
        """The line for readers of the log."""
        service, _, method = self.method.rpartition("/")
        names = "; ".join(f"{kind} {', '.join(map(str, values))}" for kind, values in self.resources.items())
        asked = f"{service.rpartition('.')[2]}/{method} [{names}]"
        times = f"{self.call_count} more calls, " if self.event == REPEATED else ""
        end = f"{self.code}: {self.text}" if self.text else self.code
        whom = f" for {cut(self.on_behalf_of)}" if self.on_behalf_of else ""
        parts = f"{cut(asked)}, {times}asked by {cut(self.address)} as {cut(self.subject)}{whom}: {cut(end)}"
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in parts)


def cut(text: str) -> str:
    """Return the text with at most TEXT_LENGTH_MAX characters and a mark of the cut."""
    return text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"


def value_of(value: Value) -> Mapping[str, Any] | None:
    """Return a value before or after a change as plain fields."""
    if isinstance(value, Message):
        from google.protobuf.json_format import MessageToDict  # a store that nobody changes needs it never

        found: Mapping[str, Any] = MessageToDict(value, preserving_proto_field_name=True)
        return found
    return value


def resources_of(request: object, service: str = "") -> dict[str, list[str | int]]:
    """Return the names of a request's topics, groups and queues, each once. Empty for a request of raw bytes."""
    found: dict[str, list[str | int]] = {}
    if isinstance(request, Message):
        for kind, value in _names(request, is_of_topics=service.endswith(TOPIC_SERVICE), depth=0):
            values = found.setdefault(kind, [])
            name = cut(value) if isinstance(value, str) else value
            if name not in values and len(values) < NAME_COUNT_MAX:
                values.append(name)
    return found


def _names(message: Message, *, is_of_topics: bool, depth: int) -> Iterator[tuple[str, str | int]]:
    for field, value in message.ListFields():
        kind = "topics" if is_of_topics and field.name == "name" else NAMES.get(field.name)
        for one in value if field.is_repeated else (value,):
            if isinstance(one, Message):
                if kind is not None and isinstance(name := getattr(one, "name", None), str) and name:
                    yield kind, name  # RocketMQ's protocol has a message in place of a name
                elif depth < DEPTH_MAX:
                    yield from _names(one, is_of_topics=is_of_topics, depth=depth + 1)
            elif kind is not None and field.type != FieldDescriptor.TYPE_BYTES:
                yield kind, one


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=True, default=str)
