# SPDX-License-Identifier: Apache-2.0
"""Store: the client of the console, and how its failures become gaps of a page."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from reput_client import InvalidArgumentError, NotFoundError, Options, ReputError, RetryPolicy
from reput_client.aio import AsyncClient
from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import Call
from reput_client.core.ends import calls_end_at
from reput_client.core.types import from_ms

from libs.machine.clock import Clock, SystemClock
from libs.runtime.errors import ConfigError
from libs.runtime.trust.tokens import TokenFile
from libs.service_names import SERVICES
from libs.shards.shards_file import Shard
from services.console.ask.places import Places
from services.console.config import ConsoleConfig
from services.console.pages.history import Ring
from services.console.pages.mask import Mask, mask_of
from services.console.pages.page import Gap, merged
from services.console.pages.stills import Stills

T = TypeVar("T")
S = TypeVar("S")

READER: ContextVar[str] = ContextVar("READER", default="")
"""The reader that makes a change. The audit lines of the store show it; it gives no right."""
CALLS_AT_ONCE = 16
"""Calls of a page that run at the same time."""
LATE_S = 1.0
"""Time behind the end of all calls of a page after which they are cancelled."""
NAMES_OF_OBJECTS = frozenset({"topic", "group", "name"})
"""The fields of requests that name a topic or a group."""
NO_JANITOR = "unix:no-janitor-in-shards_file"
"""The address of the Janitor of a shard whose file names none: nothing listens there."""
NO_CONNECTION = "failed to connect to all addresses"
"""The begin of gRPC's text for a call that found no connection."""


class Store:
    """A store that the console shows. Callers: the event loop."""

    def __init__(self, options: Options, targets: dict[str, str], mask: Mask, shard: str = "") -> None:
        self.shard = shard
        """Its name among the shards; empty for a store without shards."""
        self.shards: Mapping[str, Store] = {}
        """All shards by name, this store among them; none for a store without shards."""
        retry = RetryPolicy(retries=1)
        self.client = AsyncClient(options, retry)
        self.changing_client = AsyncClient(replace(options, on_behalf_of=READER.get), RetryPolicy(retries=0))
        """The client for changes. It repeats no call, so an error is that of the only attempt."""
        self._channels = AsyncChannels(options, retry)
        self.targets = targets
        self.clock: Clock = SystemClock()
        self.mask = mask
        self.timeout_s = options.timeout_s
        self.answer_timeout_s: float | None = None
        """Longest time of all calls of an answer together; None for no bound. Calls that take longer are gaps."""
        self.right_advice = "this console lacks the right: its setting store_token_file gives it an operator's token"
        self.has_tls = bool(options.ca_file)
        self.certificate_files: tuple[Path, ...] = ()
        self.certificate_ends: tuple[float, dict[str, float]] | None = None
        """The ends of certificates, and when they were looked at."""
        self.ring = Ring(0)
        """The last 24 hours, which the sampler fills."""
        self.stills = Stills()
        """Since when offsets have not moved, as the sampler saw it."""
        self.places = Places(options, targets, self.clock)
        self.audit_turn = asyncio.Lock()
        """All lines of a service may take 8 MiB: a single page reads them at a time."""
        self.dry_run_turn = asyncio.Lock()
        """The Janitor refuses a second run at the same time."""
        self.past_offsets: dict[tuple[str, int, int], int] = {}
        """Queue offsets at past moments, which never change: see `ask.arrivals`."""

    @classmethod
    def connected(cls, config: ConsoleConfig, shard: str = "", places: Shard | None = None) -> "Store":
        """Return the store of the settings, or the shard at these places. Raises ConfigError.

        Connections are made at their first use.
        """
        targets = config.targets if places is None else config.targets_of(places)
        addresses: dict[str, Any] = {name: targets[name] for name in SERVICES if targets[name]}
        if places is not None and not places.janitor:
            addresses["janitor"] = NO_JANITOR
        file = config.store_token_file
        token = TokenFile("store_token_file", file) if file is not None else None
        try:
            options = Options(
                **addresses,
                ca_file=_path(config.store_ca_file),
                certificate_file=_path(config.store_certificate_file),
                key_file=_path(config.store_key_file),
                token=(lambda: token.shown) if token is not None else "",
                timeout_s=config.store_timeout_ms / 1000,
            )
            return cls(options, targets, mask_of(config.masked_fields, hides_bodies=config.hide_bodies), shard)
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

    def listed(self, request: Any, items: Callable[[Any], Iterable[T]]) -> AsyncIterator[T]:
        """Yield all items of a list as the store answers them. `items` reads them from an answer. Raises ReputError."""
        return self._channels.pages(request, items)

    async def close(self) -> None:
        """Close all connections."""
        await self.client.close()
        await self.changing_client.close()
        await self._channels.close()
        await self.places.close()


def _path(file: object) -> str:
    return "" if file is None else str(file)


@dataclass(slots=True)
class Asking:
    """The questions of a page. A question that fails leaves a gap, and its answer is None."""

    store: Store
    is_bounded: bool = True
    """Whether `Store.answer_timeout_s` bounds the time of all questions together."""
    found_gaps: list[Gap] = field(default_factory=list)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))
    _end_s: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.is_bounded and self.store.answer_timeout_s is not None:
            self._end_s = time.monotonic() + self.store.answer_timeout_s

    @property
    def client(self) -> AsyncClient:
        """The client of the store."""
        return self.store.client

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps so far, a gap for each reason."""
        return merged(self.found_gaps)

    async def ask(self, what: str, call: Awaitable[T]) -> T | None:
        """Return the answer of a call. None with a gap if it fails, None without a gap if there is no such object."""
        async with self._turns:
            try:
                async with self._in_time():
                    return await call
            except (ReputError, TimeoutError) as error:
                if not is_missing(error):
                    self.tell(what, error)
                return None

    async def ask_by(self, what: str, call: Awaitable[T]) -> tuple[T | None, str]:
        """Return the answer of a call whose arguments a reader typed, or why the store refuses them.

        As for `ask` it is None without a gap if there is no such object.
        """
        async with self._turns:
            try:
                async with self._in_time():
                    return await call, ""
            except NotFoundError:
                return None, ""
            except InvalidArgumentError as error:
                return None, error.text
            except (ReputError, TimeoutError) as error:
                self.tell(what, error)
                return None, ""

    async def first(self, what: str, items: AsyncIterator[T], count: int) -> tuple[list[T], bool]:
        """Return the first items of a list, and whether there are more. An error ends the list with a gap."""
        taken: list[T] = []
        async with self._turns:
            try:
                async with self._in_time():
                    async for item in items:
                        if len(taken) == count:
                            return taken, True
                        taken.append(item)
            except (ReputError, TimeoutError) as error:
                if not is_missing(error):
                    self.tell(what, error)
        return taken, False

    def tell(self, what: str, error: ReputError | TimeoutError) -> None:
        """Add a gap for a question that failed, or that the time of the answer did not suffice for."""
        is_late = self._end_s is not None and time.monotonic() >= self._end_s
        if isinstance(error, ReputError) and not is_late:
            self.found_gaps.append(Gap(what, why(error, self.store)))
        else:
            self.left_out(what, f"the answer would take longer than {self.store.answer_timeout_s or 0:.0f} s")

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """End the calls within the block in time, by their deadlines: a cancelled call would leave memory behind."""
        if self._end_s is None:
            yield
            return
        with calls_end_at(self._end_s):
            async with asyncio.timeout(self._end_s - time.monotonic() + LATE_S):
                yield

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


def is_missing(error: Exception) -> bool:
    """Return whether there is no such object: the store has none of this name, or refuses the name for any object."""
    if isinstance(error, InvalidArgumentError):
        return bool(error.fields) and NAMES_OF_OBJECTS.issuperset(error.fields)
    return isinstance(error, NotFoundError)


def why(error: ReputError, store: Store) -> str:
    """Return the reason of a failed call for people: a service without a listener is named by its address."""
    if error.text.startswith(NO_CONNECTION):
        if NO_JANITOR.removeprefix("unix:") in error.text:
            return "shards_file names no Janitor of this shard"
        for name, target in reversed(store.targets.items()):  # the gateway first, which may be called for the others
            ports = {one.rpartition(":")[2] for one in target.split(",")}
            if any(f":{port}:" in f"{error.text}:" for port in ports):
                return f"{NAMES[name]} at {target} does not answer"
        return "a service of the store does not answer"
    if error.reason == "NOT_PERMITTED":
        return store.right_advice
    return str(error)


NAMES = {
    "commitlog": "the CommitLog",
    "indexer": "the Indexer",
    "janitor": "the Janitor",
    "delivery": "Delivery",
    "gateway": "the gateway",
}
