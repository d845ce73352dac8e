# SPDX-License-Identifier: Apache-2.0
"""RightsCheck: checks the rights of the callers of a method, request by request, where rights are set."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, Self

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from libs.runtime.http2.turns import TurnCall
from libs.runtime.rpc.first_step import Rest
from libs.runtime.trust.rights.access import Access, AccessDenied, RefusedRequest
from libs.runtime.trust.rights.accesses import MethodAccess

Take = Callable[[Sequence[bytes], Sequence[TurnCall]], Iterable[bytes | Rest | None]]
Refused = Callable[[Any, Any, Exception], None]


class RightsCheck:
    """The check of a method. With `goes_on` a refused request of a stream is handed over as a RefusedRequest.

    `refused` is called with each such request, its context and the error: no end of a call tells of it.
    """

    def __init__(
        self, access: Access, method: MethodAccess, described: MethodDescriptor, *, goes_on: bool, refused: Refused
    ) -> None:
        self._access, self._method, self._goes_on, self.refused = access, method, goes_on, refused
        self._answer: Final = GetMessageClass(described.output_type)

    def check(self, request: Any, context: Any) -> None:
        """Return if the caller may make this request. Raises AccessDenied and NoToken."""
        self._access.check(self._method, request, context)

    def checking(self, requests: AsyncIterator[Any], context: Any) -> "CheckedRequests":
        """Return a stream of requests, each of which is checked."""
        return CheckedRequests(requests, self, context, goes_on=self._goes_on)

    def shown(self, reply: bytes | Message, context: Any) -> bytes | Message:
        """Return the part of an answer that the caller may see. Raises AccessDenied and NoToken."""
        if self._method.shown is None:
            return reply
        message = self._answer.FromString(reply) if isinstance(reply, bytes) else reply
        return self._access.show(self._method.shown, message, context)

    def taking(self, take: Take) -> Take:
        """Return a function that takes the permitted requests of a turn. Each other request has the outcome None."""

        def take_permitted(requests: Sequence[bytes], calls: Sequence[TurnCall]) -> Iterable[bytes | Rest | None]:
            both = list(zip(requests, calls, strict=True))
            is_permitted = [self._access.permits(self._method, request, call) for request, call in both]
            permitted = [pair for pair, is_so in zip(both, is_permitted, strict=True) if is_so]
            taken = iter(take([request for request, _ in permitted], [call for _, call in permitted]))
            return [next(taken) if is_so else None for is_so in is_permitted]

        return take_permitted

    def lasting(self, argument: Any, context: Any) -> "LastingCheck | None":
        """Return the check of a stream of answers while it lasts. None if its requests go on to be checked."""
        return None if self._goes_on else LastingCheck(self._access, self._method, argument, context)


class CheckedRequests:
    """The requests of a stream. A refused request ends the stream, or is a RefusedRequest with `goes_on`."""

    def __init__(self, requests: AsyncIterator[Any], check: RightsCheck, context: Any, *, goes_on: bool) -> None:
        self._requests, self._check, self._context, self._goes_on = requests, check, context, goes_on
        self.first: Any = None
        """The first request, which names the resources of the whole stream. None before it, and with `goes_on`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        try:
            self._check.check(request, self._context)
        except AccessDenied as error:
            if not self._goes_on:
                raise
            self._check.refused(request, self._context, error)
            refused = RefusedRequest(request)
            refused.error = error
            return refused
        if self.first is None and not self._goes_on:
            self.first = request
        return request


class LastingCheck:
    """The check of a stream of answers, which is repeated when the rights have changed."""

    def __init__(self, access: Access, method: MethodAccess, argument: Any, context: Any) -> None:
        self._access, self._method, self._argument, self._context = access, method, argument, context
        self._generation = access.generation

    def check_again(self) -> None:
        """Return if the caller may still read. Raises AccessDenied and NoToken."""
        generation = self._access.generation
        if generation == self._generation:
            return
        self._generation = generation
        is_stream = isinstance(self._argument, CheckedRequests)
        request = self._argument.first if is_stream else self._argument
        if request is not None:
            self._access.check(self._method, request, self._context)
