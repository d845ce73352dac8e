# SPDX-License-Identifier: Apache-2.0
"""Reput: a running store as a test sees it: clients, clean names and restarts. Both fixtures have these methods."""

import contextlib
import functools
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput_client import Client, aio

SERVICES = ("commitlog", "indexer", "delivery", "janitor")
NAME_SIZE_MAX = 60
"""Characters of a test's name in names of topics and groups, which have at most 127."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


class Reput(ABC):
    """A running store. Callers: any thread of the test.

    `targets` maps a service to host:port. They stay the same through restarts.
    """

    def __init__(self, targets: Mapping[str, str], test_name: str = "test") -> None:
        self.targets = dict(targets)
        self.test_name = test_name
        self._clients = contextlib.ExitStack()
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={target}' for name, target in self.targets.items())})"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which `reput_client.connect()` finds the store, also in other processes."""
        return {f"REPUT_CLIENT_{name.upper()}_TARGET": target for name, target in self.targets.items()}

    def client(self) -> "Client":
        """Return the client of this test, which is made at the first call and closed after the test."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    @property
    def operator_token(self) -> str:
        """The token of an operator, for calls that change or delete: `reput.connect(token=reput.operator_token)`."""
        from reput_server.embedded import load

        token: str = load("libs.runtime.trust.tokens").ensure_local_token().read_text().split()[0]
        return token

    def connect(self, **options: Any) -> "Client":
        """Return a new client, with any option of `reput_client.connect`. It is closed after the test, or by you."""
        import reput_client

        client = reput_client.connect(**{**self.targets, **options})
        self._clients.push(client)
        return client

    @functools.cached_property
    def aio(self) -> "AioReput":
        """The same for asyncio."""
        return AioReput(self)

    def topic(self, name: str = "", *, queue_count: int = 4) -> str:
        """Create a topic that no other test has, and return its name, which contains the name of the test."""
        topic = self.name(name)
        self.client().topics.create(topic, read_queue_count=queue_count, write_queue_count=queue_count)
        return topic

    def name(self, name: str = "") -> str:
        """Return a name that no other test has, for a topic or a group."""
        plain = _NOT_IN_NAMES.sub("-", f"{self.test_name}-{name}" if name else self.test_name)
        return f"{plain[:NAME_SIZE_MAX].strip('-')}-{uuid.uuid4().hex[:8]}"

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the services run."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the services in order. Their data stay."""

    @abstractmethod
    def kill(self) -> None:
        """End the services at once, as a crash does."""

    @abstractmethod
    def start(self) -> None:
        """Start the services on the same data and the same ports. Returns when they answer."""

    def restart(self, *, crash: bool = False) -> None:
        """Stop and start the services. With `crash` they end as in a crash."""
        if crash:
            self.kill()
        else:
            self.stop()
        self.start()

    def close_clients(self) -> None:
        """Close the clients of `client` and `connect`."""
        self._client = None
        self._clients.close()


class AioReput:
    """The asyncio side of a store."""

    def __init__(self, store: Reput) -> None:
        self._store = store

    def connect(self, **options: Any) -> "aio.AsyncClient":
        """Return a new asyncio client, with any option of `reput_client.aio.connect`. Use it with `async with`."""
        from reput_client import aio

        return aio.connect(**{**self._store.targets, **options})

    async def restart(self, *, crash: bool = False) -> None:
        """See `Reput.restart`. The test's event loop runs meanwhile."""
        import asyncio

        await asyncio.to_thread(functools.partial(self._store.restart, crash=crash))
