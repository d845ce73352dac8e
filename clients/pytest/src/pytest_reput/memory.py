# SPDX-License-Identifier: Apache-2.0
"""MemoryReput: a store in the test process, with a clock that the test moves and refusals that it plans."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pytest_reput.errors import ServerMissing
from pytest_reput.store import Reput

if TYPE_CHECKING:
    from pytest_reput.inside import Inside


class MemoryReput(Reput):
    """A real store in the test process: its services over a file system in memory."""

    def __init__(self, test_name: str = "test", settings: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._inside: Inside = _load().Inside(settings or {})
        super().__init__(self._inside.start(), test_name)

    @property
    def now(self) -> datetime:
        """The time of the store."""
        return datetime.fromtimestamp(self._inside.clock.now_ms() / 1000, UTC)

    def advance(self, duration: timedelta | None = None, **parts: float) -> None:
        """Move the store's clock ahead, by a duration or by parts of one: `advance(hours=2)`.

        For the services it is as if the machine had slept: they act on due times within milliseconds.
        """
        duration = (duration or timedelta()) + timedelta(**parts)
        if duration < timedelta():
            raise ValueError(f"advance by {duration}: the clock only moves ahead")
        self._inside.advance(round(duration.total_seconds() * 1000))

    def fail_next(
        self,
        call: str,
        reason: str = "",
        *,
        code: str = "",
        times: int = 1,
        message: str = "refused by the test",
        retry_after_ms: int | None = None,
        **metadata: str,
    ) -> None:
        """Refuse the next calls of clients, in the server and before the call has an effect.

        `call` is "append", or a method of the API such as "query_by_key", "receive" or "settle". `reason` is a reason
        of docs/errors.md and gives the code; a `code` without a reason is a failure that Reput did not answer.
        A client repeats calls after temporary reasons, so it may hide a single refusal, as in production.
        Calls of the services among each other are not refused. A further call replaces the plan of the same methods.
        """
        self._inside.fail_next(
            call, reason, code=code, times=times, message=message, retry_after_ms=retry_after_ms, metadata=metadata
        )

    @property
    def is_running(self) -> bool:
        """See `Reput.is_running`."""
        return self._inside.is_running

    def stop(self) -> None:
        """See `Reput.stop`."""
        self._inside.stop()

    def kill(self) -> None:
        """See `Reput.kill`. Data that were not synced are lost, as in a power cut."""
        self._inside.kill()

    def start(self) -> None:
        """See `Reput.start`."""
        self._inside.start()

    def close(self) -> None:
        """Close clients and services. Raises the error of a service that failed."""
        try:
            self.close_clients()
        finally:
            self._inside.close()


def _load() -> Any:
    """Return the module of the services. Raises ServerMissing."""
    try:
        from reput_server.embedded import load
    except ImportError as error:
        raise ServerMissing(error) from error
    load("pytest_reput.refusals")
    return load("pytest_reput.inside")
