# SPDX-License-Identifier: Apache-2.0
"""CallerRights: the rights of the gateway's callers, by the rules of the rights file that the store's services use.

The gateway calls the store with the token of a service, so it checks the rights itself. The subject of a caller is the
subject of its access key, or else of its certificate.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from libs.runtime.trust.rights.access import Access, AccessDenied
from libs.runtime.trust.rights.accesses import resources_of_handle
from libs.runtime.trust.rights.quota import Quota, QuotaExceeded
from libs.runtime.trust.rights.rules import ANONYMOUS, ANY, Action, Asked, Kind, Resource, Subject
from services.gateway.errors import Refused
from services.gateway.rpc.access_keys import AccessKeys
from services.gateway.rpc.caller import Caller, Context
from services.gateway.rpc.wire import messaging_pb2 as wire

Questions = Callable[[Any, Caller], Iterator[Asked]]


class CallerRights:
    """Admits callers and checks their requests. Without a rights file each admitted caller may call all methods."""

    def __init__(self, keys: AccessKeys, access: Access | None) -> None:
        self._keys = keys
        self._access = access if access is not None and access.is_set else None

    def admit(self, context: Context, request: Any | None, *, is_stream: bool = False) -> Caller:
        """Return the caller, after the check of its access key and its quota. A quota counts the request's bytes.

        Raises Refused.
        """
        key = self._keys.check(context)
        caller = Caller.of(context)
        if self._access is None:
            return caller
        subject = self._subject_of(key, context)
        if subject.quota is not None:
            size_bytes = 0 if request is None else request.ByteSize()
            try:
                self._access.count(subject.quota, context, size_bytes, is_stream=is_stream)
            except QuotaExceeded as error:
                raise _over(error) from error
        return replace(caller, subject=subject)

    def quota_of(self, context: Context) -> Quota | None:
        """Return the quota of a caller's subject, as the file is now. None without one. Raises Refused."""
        return None if self._access is None else self._subject_of(self._keys.check(context), context).quota

    def name_of(self, context: Context) -> str:
        """Return the name of a caller's subject, for the audit: `anonymous` if its access key is wrong."""
        try:
            key = self._keys.check(context)
        except Refused:
            return ANONYMOUS
        return (key or ANONYMOUS) if self._access is None else self._subject_of(key, context).name

    def _subject_of(self, key: str, context: Context) -> Subject:
        assert self._access is not None
        return self._access.subject_of_access_key(key) if key else self._access.subject_of(context)

    def check(self, request: Any, caller: Caller) -> None:
        """Return if the caller may make this request. Raises Refused."""
        if self._access is None or caller.subject is None or caller.subject.is_trusted:
            return
        try:
            self._access.require(caller.subject, QUESTIONS[type(request).__name__](request, caller))
        except AccessDenied as error:
            raise Refused("FORBIDDEN", str(error), reason="NOT_PERMITTED") from error

    async def checked(
        self, requests: AsyncIterator[wire.TelemetryRequest], caller: Caller, context: Context
    ) -> AsyncIterator[wire.TelemetryRequest]:
        """Yield the requests of a stream that the caller may make. Raises Refused for the first of the others."""
        async for request in requests:
            quota = self.quota_of(context)
            if quota is not None and self._access is not None:
                try:
                    await self._access.count_waiting(quota, context, request.ByteSize())
                except QuotaExceeded as error:
                    raise _over(error) from error
            self.check(request, caller)
            yield request


def _over(error: QuotaExceeded) -> Refused:
    return Refused("TOO_MANY_REQUESTS", str(error), reason="QUOTA_EXCEEDED", over=error.subject)


def _topic(actions: Action, name: str) -> Asked:
    return Asked(actions, Resource(Kind.TOPIC, name))


def _consumption(group: wire.Resource, topic: wire.Resource, caller: Caller) -> Iterator[Asked]:
    yield Asked(Action.CONSUME, Resource(Kind.GROUP, caller.group(group)))
    yield _topic(Action.CONSUME, caller.topic(topic))


def _of_send(request: wire.SendMessageRequest, caller: Caller) -> Iterator[Asked]:
    for topic in {caller.topic(message.topic) for message in request.messages}:
        yield _topic(Action.PRODUCE, topic)


def _of_own_topic(request: Any, caller: Caller) -> Iterator[Asked]:
    yield _topic(Action.PRODUCE, caller.topic(request.topic))


def _of_handles(*handles: str) -> Iterator[Asked]:
    for handle in handles:
        for resource in resources_of_handle(handle):
            yield Asked(Action.CONSUME, resource)


def _of_settings(request: wire.TelemetryRequest, caller: Caller) -> Iterator[Asked]:
    """A producer is asked how the transactions of its topics end, with their messages."""
    for topic in request.settings.publishing.topics:
        if topic.name:
            yield _topic(Action.PRODUCE, caller.topic(topic))
    subscription = request.settings.subscription
    if subscription.group.name:
        yield Asked(Action.CONSUME, Resource(Kind.GROUP, caller.group(subscription.group)))
    for entry in subscription.subscriptions:
        if entry.topic.name:
            yield _topic(Action.CONSUME, caller.topic(entry.topic))


def _none(_request: object, _caller: Caller) -> Iterator[Asked]:
    yield from ()


QUESTIONS: Mapping[str, Questions] = {
    "QueryRouteRequest": lambda request, caller: iter((_topic(ANY, caller.topic(request.topic)),)),
    "QueryAssignmentRequest": lambda request, caller: _consumption(request.group, request.topic, caller),
    "HeartbeatRequest": _none,
    "NotifyClientTerminationRequest": _none,
    "SendMessageRequest": _of_send,
    "ReceiveMessageRequest": lambda request, caller: _consumption(request.group, request.message_queue.topic, caller),
    "AckMessageRequest": lambda request, _: _of_handles(*(entry.receipt_handle for entry in request.entries)),
    "ChangeInvisibleDurationRequest": lambda request, _: _of_handles(request.receipt_handle),
    "ForwardMessageToDeadLetterQueueRequest": lambda request, _: _of_handles(request.receipt_handle),
    "TelemetryRequest": _of_settings,
    "EndTransactionRequest": _of_own_topic,
    "RecallMessageRequest": _of_own_topic,
    "SyncLiteSubscriptionRequest": _none,
}
"""Maps the name of each request to the questions that it asks. Heartbeats and departures concern the client alone."""
