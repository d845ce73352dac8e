# SPDX-License-Identifier: Apache-2.0
"""Stage: a store, or several shards, and gateways as processes: plain, with TLS, with access keys, and with rights."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from reput.delivery.v1 import group_service_pb2_grpc

from libs.shards import shards_file
from libs.shards.shards_file import Shard
from tests.support import reput_up
from tests.support.certificates import self_signed
from tests.support.surroundings import free_port

KEYS = "".join(f"{name} secret-of-{name}\n" for name in ("alice", "shop", "billing"))
RIGHTS = """
[[subjects]]
name = "shop"
access_keys = ["shop"]

[[subjects]]
name = "billing"
access_keys = ["billing"]

[[rules]]
subjects = ["shop"]
allow = ["produce"]
topics = ["topic-*"]

[[rules]]
subjects = ["billing"]
allow = ["consume"]
topics = ["topic-*"]
groups = ["group-*"]
"""


@dataclass(frozen=True)
class Stage:
    """The addresses of the gateways, by name of their access control, and the groups behind them."""

    places: dict[str, str]
    authorities: Path
    groups: Any
    shards: Mapping[str, Shard]


class Groups:
    """The groups of all shards."""

    def __init__(self, channels: Sequence[grpc.aio.Channel]) -> None:
        self._stubs = [group_service_pb2_grpc.GroupServiceStub(channel) for channel in channels]

    async def set_policy(self, request: Any) -> None:
        """Set the policy of a group at each shard."""
        for stub in self._stubs:
            await stub.SetGroup(request)


@contextlib.asynccontextmanager
async def stage(directory: Path, shard_count: int = 1) -> AsyncIterator[Stage]:
    """A store with Delivery, or several shards, and six gateways, for a block."""
    files = self_signed(directory, "gateway")
    keys = directory / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    rights = directory / "rights.toml"
    rights.write_text(RIGHTS)
    async with contextlib.AsyncExitStack() as stack:
        shards: dict[str, Shard] = {}
        for number in range(shard_count):
            name = f"shard-{number}"
            store = stack.enter_context(reput_up.store(directory / name))
            targets = store.targets["commitlog"], store.targets["indexer"]
            shards[name] = Shard(*targets, delivery=f"127.0.0.1:{free_port()}")
        behind = _behind(directory, shards)
        for shard in shards.values():
            own = [f"--commitlog-target={shard.commitlog}", f"--indexer-target={shard.indexer}"]
            own += [f"--port={shard.delivery.rpartition(':')[2]}", *(behind if shard_count > 1 else ())]
            await stack.enter_async_context(_service("delivery", directory, *own))
        behind = [*behind, "--auto-create-topics=true"]
        tls = [f"--tls-certificate-file={files['gateway.pem']}", f"--tls-key-file={files['gateway.key']}"]
        asks = [f"--access-keys-file={keys}"]
        checks = [*asks, f"--rights-file={rights}"]
        places = {}
        for name, host, flags in (
            ("plain", "127.0.0.1", []),
            ("keys", "127.0.0.1", asks),
            ("keys, rights", "127.0.0.1", checks),
            ("guarded", "localhost", [*tls, *asks]),
            ("guarded, rights", "localhost", [*tls, *checks]),
            ("tls", "localhost", tls),
        ):
            port = await stack.enter_async_context(_service("gateway", directory, *behind, *flags))
            places[name] = f"{host}:{port}"
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(shard.delivery)) for shard in shards.values()
        ]
        yield Stage(places, files["gateway.pem"], Groups(channels), shards)


def _behind(directory: Path, shards: Mapping[str, Shard]) -> list[str]:
    """Return the flags of a gateway that name what is behind it."""
    if len(shards) == 1:
        (shard,) = shards.values()
        return [f"--commitlog-target={shard.commitlog}", f"--delivery-target={shard.delivery}"]
    path = directory / "shards.toml"
    path.write_text(shards_file.dumps(shards))
    return [f"--shards-file={path}"]


@contextlib.asynccontextmanager
async def _service(name: str, directory: Path, *flags: str) -> AsyncIterator[int]:
    """A service as a child, and its port."""
    environment = {**os.environ, f"REPUT_{name.upper()}_LOG_FORMAT": "json"}
    command = [sys.executable, "-m", f"services.{name}", "--port=0", "--metrics-port=0", *flags]
    log = directory / f"{uuid.uuid4().hex}.log"
    with log.open("wb") as file:
        child = await asyncio.create_subprocess_exec(*command, env=environment, stderr=file)
        try:
            while True:
                lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
                ports = [line["port"] for line in lines if line["event"] == "serving"]
                if ports:
                    break
                assert child.returncode is None, log.read_text()
                await asyncio.sleep(0.1)
            yield ports[0]
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)
            await child.wait()
