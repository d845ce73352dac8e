# SPDX-License-Identifier: Apache-2.0
"""Call and Pages: a call as a value: what to send, where, and how to read the answer. No I/O.

Both doors run the same calls; neither knows a request or a response type.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from google.protobuf.message import Message

T = TypeVar("T")
Service: TypeAlias = Literal["commitlog", "indexer", "janitor"]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A call with one request. `path` is package.Service/Method; `extra_timeout_s` is for calls that wait by design."""

    service: Service
    path: str
    request: Message
    response_type: type[Any]
    """Its FromString parses an answer."""
    convert: Callable[[Any], T]
    is_repeatable: bool = True
    """False: an answer that got lost does not allow another attempt."""
    extra_timeout_s: float = 0.0


class Pages(Generic[T]):
    """A list that comes in pages. `call` is always the next page's call, None at the end."""

    def __init__(self, call: Call[Any], items: Callable[[Any], list[T]]) -> None:
        self.call: Call[Any] | None = call
        self._items = items

    def take(self, response: Any) -> list[T]:
        """The items of an answer to `call`; afterwards `call` asks for the page behind it."""
        assert self.call is not None
        request: Any = self.call.request
        request.page_token = response.next_page_token
        if not response.next_page_token:
            self.call = None
        return self._items(response)


def same(response: T) -> T:
    """For calls whose response message is handed out as it is."""
    return response
