# SPDX-License-Identifier: Apache-2.0
"""Store: the client of the console, and how its failures become gaps of a page."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from reput_client import NotFoundError, Options, ReputError, RetryPolicy
from reput_client.aio import AsyncClient
from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import Call
from reput_client.core.types import from_ms

from libs.machine.clock import Clock, SystemClock
from libs.runtime.errors import ConfigError
from libs.runtime.trust.tokens import TokenFile
from services.console.config import ConsoleConfig
from services.console.pages.page import Gap, merged

T = TypeVar("T")
S = TypeVar("S")

CALLS_AT_ONCE = 16
"""Calls of a page that run at the same time."""
NO_CONNECTION = "failed to connect to all addresses"
"""The begin of gRPC's text for a call that found no connection."""


class Store:
    """The store that the console shows. Callers: the event loop."""

    def __init__(self, options: Options, targets: dict[str, str], *, hides_bodies: bool) -> None:
        retry = RetryPolicy(retries=1)
        self.client = AsyncClient(options, retry)
        self._channels = AsyncChannels(options, retry)
        self.targets = targets
        self.clock: Clock = SystemClock()
        self.hides_bodies = hides_bodies
        self.past_offsets: dict[tuple[str, int, int], int] = {}
        """Queue offsets at past moments, which never change: see `ask.arrivals`."""

    @classmethod
    def connected(cls, config: ConsoleConfig) -> "Store":
        """Return the store of the settings. Connections are made at their first use. Raises ConfigError."""
        targets = {name: getattr(config, f"{name}_target") for name in ("commitlog", "indexer", "janitor", "delivery")}
        file = config.store_token_file
        token = TokenFile("store_token_file", file) if file is not None else None
        try:
            options = Options(
                **{name: target for name, target in targets.items() if target},
                ca_file=_path(config.store_ca_file),
                certificate_file=_path(config.store_certificate_file),
                key_file=_path(config.store_key_file),
                token=(lambda: token.shown) if token is not None else "",
                timeout_s=config.store_timeout_ms / 1000,
            )
            return cls(options, targets, hides_bodies=config.hide_bodies)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the connection to the store: {error}") from error

    @property
    def now(self) -> datetime:
        """The present."""
        return from_ms(self.clock.now_ms())

    @property
    def has_delivery(self) -> bool:
        """Whether the store has a Delivery: without it no group shares messages."""
        return bool(self.targets["delivery"])

    async def run(self, call: Call[T]) -> T:
        """Run a call that the client has no method for. Raises ReputError."""
        return await self._channels.run(call)

    async def close(self) -> None:
        """Close all connections."""
        await self.client.close()
        await self._channels.close()


def _path(file: object) -> str:
    return "" if file is None else str(file)


@dataclass(slots=True)
class Asking:
    """The questions of a page. A question that fails leaves a gap, and its answer is None."""

    store: Store
    found_gaps: list[Gap] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))

    @property
    def client(self) -> AsyncClient:
        """The client of the store."""
        return self.store.client

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps so far, one for each reason."""
        return merged(self.found_gaps)

    async def ask(self, what: str, call: Awaitable[T]) -> T | None:
        """Return the answer of a call. None with a gap if it fails, None without a gap if there is no such object."""
        async with self._turns:
            try:
                return await call
            except NotFoundError:
                return None
            except ReputError as error:
                self.tell(what, error)
                return None

    async def first(self, what: str, items: AsyncIterator[T], count: int) -> tuple[list[T], bool]:
        """Return the first items of a list, and whether there are more. An error ends the list with a gap."""
        taken: list[T] = []
        async with self._turns:
            try:
                async for item in items:
                    if len(taken) == count:
                        return taken, True
                    taken.append(item)
            except NotFoundError:
                pass
            except ReputError as error:
                self.tell(what, error)
        return taken, False

    def tell(self, what: str, error: ReputError) -> None:
        """Add a gap for a question that failed."""
        self.found_gaps.append(Gap(what, why(error, self.store.targets)))

    def left_out(self, what: str, reason: str) -> None:
        """Add a gap for a question that was not asked."""
        self.found_gaps.append(Gap(what, reason))


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Run calls at the same time and return their answers in order."""
    return list(await asyncio.gather(*calls))


async def each(items: Iterable[S], call: Callable[[S], Awaitable[T]]) -> list[tuple[S, T]]:
    """Call a function for each item, at the same time, and return the items with their answers."""
    known = list(items)
    return list(zip(known, await together(map(call, known)), strict=True))


def why(error: ReputError, targets: dict[str, str]) -> str:
    """Return the reason of a failed call for people: a service without a listener is named by its address."""
    if error.text.startswith(NO_CONNECTION):
        for name, target in targets.items():
            ports = {one.rpartition(":")[2] for one in target.split(",")}
            if any(f":{port}:" in f"{error.text}:" for port in ports):
                return f"{NAMES[name]} at {target} does not answer"
        return "a service of the store does not answer"
    return str(error)


NAMES = {"commitlog": "the CommitLog", "indexer": "the Indexer", "janitor": "the Janitor", "delivery": "Delivery"}
