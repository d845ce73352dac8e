# SPDX-License-Identifier: Apache-2.0
"""Two shards behind a gateway, with a topic of messages with keys, and their console."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import reput_client
from reput_client import Client

from libs.runtime.trust.tokens import local_token_path
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support import reput_up
from tests.support.console import RunningConsole
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import Caller
from tests.support.surroundings import free_port

QUEUE_COUNT, KEY_COUNT = 4, 40


@dataclass
class Shards:
    """The store, its console, and the file of the shards."""

    store: reput_up.Store
    console: RunningConsole
    file: str

    def commands(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command of `reput shards`, expect success, and return the rows."""
        return self.store.json("shards", *arguments, "--shards-file", self.file)

    def client(self, at: int) -> Client:
        """Return a client of a shard."""
        targets = {name: text.split(",")[at] for name, text in self.store.targets.items()}
        return reput_client.connect(**targets, token=local_token_path().read_text().strip())

    def process(self, service: str, at: int) -> int:
        """The process id of a service of a shard."""
        return self.store.child(service, self.store.targets[service].split(",")[at].rpartition(":")[2])

    def complete(self, path: str) -> Any:
        """Read a page until nothing is missing: a service that has just started may answer late."""
        end_s = time.monotonic() + LIMIT_S
        while (found := self.console.json(path))["gaps"]:
            assert time.monotonic() < end_s, found["gaps"]
        return found


@contextmanager
def sharded_console(data_dir: Path) -> Iterator[Shards]:
    """Two shards and their console, for a block."""
    port = free_port()
    flags = (*reput_up.WITH_GATEWAY, "--shards", "2", "--console", "--console-port", str(port))
    with reput_up.store(data_dir, *flags) as store:
        found = Shards(store, RunningConsole(port, store.process), str(data_dir / "shards.toml"))
        found.commands("create", "orders", "--queues", str(QUEUE_COUNT))
        with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this thread
            thread.submit(asyncio.run, _fill(store.door)).result()
        yield found


async def _fill(door: str) -> None:
    """Send messages with keys over both shards: a key of its own for each, and a key that all have."""
    async with grpc.aio.insecure_channel(door) as channel:
        client = Caller(channel)
        for number in range(KEY_COUNT):
            keys = [f"order-{number}", "all"]
            message = client.message("orders", f"{number}".encode(), message_group=f"key-{number}", keys=keys)
            assert (await client.send("orders", message)).status.code == wire.CODE_OK
