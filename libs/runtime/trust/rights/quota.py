# SPDX-License-Identifier: Apache-2.0
"""Quota: the use of a service by a subject, within the limits that the rights file gives to the subject.

A quota counts what a subject uses at this service: calls and bytes by buckets, open streams, and connections. The rates
are of requests, so they bound what the subject may send, not what it may read. Invariants: what is refused is not
counted; a change of the limits keeps the counts, and ends nothing that is open. Callers: a single event loop.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from libs.requests.errors import ServiceError
from libs.runtime.trust.rights.bucket import Bucket

RETRY_MS_MIN = 100
"""Shortest time after which a refused caller should ask again."""
RETRY_OPEN_MS = 1_000
"""Time after which a caller with too many open streams or connections should ask again."""


class QuotaLimits(Struct, frozen=True, kw_only=True):
    """The limits of a subject. None: no limit."""

    bytes_per_s_max: int | None = None
    """Bytes of requests per second."""
    calls_per_s_max: int | None = None
    """Calls, and requests within streams, per second."""
    stream_count_max: int | None = None
    """Open streams."""
    connection_count_max: int | None = None
    """Open connections on which the subject has called."""

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self != _NONE


_NONE = QuotaLimits()
LIMIT_FIELDS = QuotaLimits.__struct_fields__
"""The names of the limits in the rights file."""
LIMIT_MAX = 1 << 50
"""Largest value of a limit."""


class QuotaExceeded(ServiceError):
    """A subject has no room left in a quota. Nothing was done, and a later attempt may succeed."""

    def __init__(self, subject: str, quota: str, *, value: int, limit: int, retry_after_ms: int) -> None:
        self.subject, self.quota, self.value, self.limit = subject, quota, value, limit
        self.retry_after_ms = retry_after_ms
        super().__init__(
            f"{subject} is over its quota: {quota} is {limit:,}, and with this request it would be {value:,}; "
            f"retry in {retry_after_ms:,} ms; docs/rights.md describes quotas"
        )


class Connection(Protocol):
    """A connection of a caller."""

    @property
    def when_lost(self) -> dict[object, Callable[[], None]]:
        """The functions that are called when it is lost, by their owner."""
        ...


class Quota:
    """The quota of a subject. `now_s` is monotonic time."""

    def __init__(self, subject: str, limits: QuotaLimits, now_s: Callable[[], float]) -> None:
        self.subject = subject
        self.limits = _NONE
        self.stream_count = self.connection_count = self.held_count = 0
        self._now_s = now_s
        self._calls: Bucket | None = None
        self._bytes: Bucket | None = None
        self.change(limits)

    def change(self, limits: QuotaLimits) -> None:
        """Change the limits. Open streams and connections stay, also above a smaller limit."""
        now_s = self._now_s()
        self._calls = _changed(self._calls, limits.calls_per_s_max, now_s)
        self._bytes = _changed(self._bytes, limits.bytes_per_s_max, now_s)
        self.limits = limits

    @property
    def is_used(self) -> bool:
        """Whether streams or connections are open, or refusals wait."""
        return self.stream_count > 0 or self.connection_count > 0 or self.held_count > 0

    def wait_s(self) -> float:
        """Return the time until the rates have room for a request. 0 if they have room now."""
        now_s = self._now_s()
        return max((one.wait_s(now_s) for one in (self._calls, self._bytes) if one is not None), default=0.0)

    def has_room(self) -> bool:
        """Return whether the rates have room for a request."""
        now_s, calls, sizes = self._now_s(), self._calls, self._bytes
        return (calls is None or calls.has_room(now_s)) and (sizes is None or sizes.has_room(now_s))

    def check_room(self, size_bytes: int) -> None:
        """Raise QuotaExceeded if the rates have no room for a request."""
        if not self.has_room():
            raise self._no_room(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Count a request. The caller has asked whether there is room."""
        if self._calls is not None:
            self._calls.take(1)
        if self._bytes is not None:
            self._bytes.take(size_bytes)

    def give_back(self, size_bytes: int) -> None:
        """Take back a request that was counted: it is going to be counted again."""
        if self._calls is not None:
            self._calls.give_back(1)
        if self._bytes is not None:
            self._bytes.give_back(size_bytes)

    def may_connect(self, connection: Connection) -> bool:
        """Return whether a connection is counted, or may be counted."""
        limit = self.limits.connection_count_max
        return limit is None or self.connection_count < limit or self in connection.when_lost

    def connect(self, connection: Connection) -> None:
        """Count a connection until it is lost, once. Raises QuotaExceeded."""
        if self in connection.when_lost:
            return
        if not self.may_connect(connection):
            raise self._too_many("connection_count_max", self.connection_count, self.limits.connection_count_max)
        self.connection_count += 1
        connection.when_lost[self] = self._disconnected

    def open_stream(self, context: Any) -> None:
        """Count a stream until its call is over. Raises QuotaExceeded."""
        limit = self.limits.stream_count_max
        if limit is not None and self.stream_count >= limit:
            raise self._too_many("stream_count_max", self.stream_count, limit)
        self.stream_count += 1
        context.add_done_callback(self._stream_ended)

    def _disconnected(self) -> None:
        self.connection_count -= 1
        assert self.connection_count >= 0

    def _stream_ended(self, _: object) -> None:
        self.stream_count -= 1
        assert self.stream_count >= 0

    def _too_many(self, name: str, count: int, limit: int | None) -> QuotaExceeded:
        assert limit is not None
        return QuotaExceeded(self.subject, name, value=count + 1, limit=limit, retry_after_ms=RETRY_OPEN_MS)

    def _no_room(self, size_bytes: int) -> QuotaExceeded:
        now_s = self._now_s()
        full = [
            (bucket.wait_s(now_s), name, bucket, amount)
            for name, bucket, amount in (
                ("calls_per_s_max", self._calls, 1),
                ("bytes_per_s_max", self._bytes, size_bytes),
            )
            if bucket is not None
        ]
        wait_s, name, bucket, amount = max(full, key=lambda one: one[0])
        retry_ms = max(RETRY_MS_MIN, math.ceil(wait_s * 1_000))
        return QuotaExceeded(
            self.subject, name, value=bucket.used + amount, limit=bucket.per_s, retry_after_ms=retry_ms
        )


def _changed(bucket: Bucket | None, per_s: int | None, now_s: float) -> Bucket | None:
    if per_s is None:
        return None
    if bucket is None:
        return Bucket(per_s, now_s)
    bucket.change(per_s, now_s)
    return bucket
