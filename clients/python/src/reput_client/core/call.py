# SPDX-License-Identifier: Apache-2.0
"""Call: a call as a value: the request, and the conversion of the answer. No I/O."""

import functools
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from reput_client.core.records import parser_of

T = TypeVar("T")
PAGE_SIZE = 1000
"""Most items that a server puts into a page of a list."""


class Method(NamedTuple):
    """A method of the API: the service's short name ("commitlog"), package.Service/Method, and the answer's parser."""

    service: str
    path: str
    parse: Callable[[bytes], Any]


@functools.cache
def method_of(request: Any) -> Method:
    """Return the method that takes requests of this descriptor: each method of the API has its own request type."""
    (method,) = (
        method
        for service in request.file.services_by_name.values()
        for method in service.methods
        if method.input_type.full_name == request.full_name
    )
    service_name = request.file.package.split(".")[1]
    path = f"{method.containing_service.full_name}/{method.name}"
    return Method(service_name, path, parser_of(GetMessageClass(method.output_type)))


def same(response: T) -> T:
    """Return a response unchanged."""
    return response


def done(response: object) -> None:
    """Return None: the answer only confirms that the call is done."""


class Call(NamedTuple, Generic[T]):
    """A call with a single request, whose type determines the method. `extra_timeout_s` is for calls that wait."""

    request: Message
    convert: Callable[[Any], T] = same
    is_repeatable: bool = True
    """False: the call is not repeated when its answer is lost."""
    extra_timeout_s: float = 0.0
    parse: Callable[[bytes], Any] | None = None
    """Parses an answer in place of the message's own parser."""
    timeout_s: float | None = None
    """Takes the place of the client's time-out."""

    @property
    def method(self) -> Method:
        """The method of the API that the call uses."""
        method = method_of(self.request.DESCRIPTOR)
        return method if self.parse is None else method._replace(parse=self.parse)
