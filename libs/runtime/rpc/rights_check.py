# SPDX-License-Identifier: Apache-2.0
"""RightsCheck: checks the rights and quotas of the callers of a method, request by request, where rights are set."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, Self

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from libs.runtime.http2.turns import TurnCall
from libs.runtime.rpc.first_step import Rest
from libs.runtime.trust.rights.access import Access, AccessDenied, RefusedRequest
from libs.runtime.trust.rights.accesses import MethodAccess
from libs.runtime.trust.rights.quota import QuotaExceeded
from libs.runtime.trust.rights.rules import Subject

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
        self._is_stream: Final = described.client_streaming or described.server_streaming

    def admit(self, size_bytes: int, context: Any) -> Subject:
        """Return the subject of a call, and count the call. Raises NoToken and QuotaExceeded."""
        subject = self._access.subject_of(context)
        if subject.quota is not None:
            self._access.count(subject.quota, context, size_bytes, is_stream=self._is_stream)
        return subject

    def check(self, request: Any, subject: Subject) -> None:
        """Return if the subject may make this request. Raises AccessDenied."""
        self._access.check(self._method, request, subject)

    def checking(self, requests: AsyncIterator[Any], context: Any) -> "CheckedRequests":
        """Return a stream of requests, each of which is checked. Raises NoToken and QuotaExceeded for the stream."""
        self.admit(0, context)
        return CheckedRequests(requests, self, context, goes_on=self._goes_on)

    async def check_next(self, request: Any, context: Any) -> None:
        """Return if the caller may make the next request of a stream. Raises AccessDenied, NoToken, QuotaExceeded."""
        subject = self._access.subject_of(context)
        if subject.quota is not None:
            size_bytes = len(request) if isinstance(request, bytes) else request.ByteSize()
            await self._access.count_waiting(subject.quota, context, size_bytes)
        self.check(request, subject)

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
            subjects = [self._access.permitted(self._method, request, call) for request, call in both]
            permitted = [pair for pair, subject in zip(both, subjects, strict=True) if subject is not None]
            taken = iter(take([request for request, _ in permitted], [call for _, call in permitted]))
            outcomes = [None if subject is None else next(taken) for subject in subjects]
            for request, subject, outcome in zip(requests, subjects, outcomes, strict=True):
                if outcome is None and subject is not None and subject.quota is not None:
                    subject.quota.give_back(len(request))  # the method is called for it, which counts it
            return outcomes

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
            await self._check.check_next(request, self._context)
        except (AccessDenied, QuotaExceeded) as error:
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
            self._access.check(self._method, request, self._access.subject_of(self._context))
