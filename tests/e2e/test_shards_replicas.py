# SPDX-License-Identifier: Apache-2.0
"""`reput up --shards 2 --replicas 3`: each shard has copies of its own, and goes on with another leader."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.e2e.test_up import in_sync, rows
from tests.support import reput_up
from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import Caller

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COPY_COUNT, COUNT, KEY_COUNT = 3, 100, 20


async def accepted(client: Caller, message: wire.Message) -> None:
    """Send a message again until it is stored, as libraries do while there is no leader."""
    async with asyncio.timeout(LIMIT_S):
        while (answer := await client.send("orders", message)).status.code != wire.CODE_OK:
            assert answer.status.code in (wire.CODE_HA_NOT_AVAILABLE, wire.CODE_PROXY_TIMEOUT), answer
            await asyncio.sleep(0.2)


@pytest.mark.skipif(ETCD is None, reason=NO_ETCD)
async def test_a_shard_whose_leader_is_lost(tmp_path: Path) -> None:
    """The copies of a shard elect another leader: keys of this shard go on, and no acknowledged message is lost."""
    with contextlib.ExitStack() as stack:
        etcd = EtcdServer(tmp_path / "etcd")
        etcd.start()
        stack.callback(etcd.kill)
        flags = ("--shards", "2", "--replicas", str(COPY_COUNT), "--etcd", etcd.target)
        extra = {"REPUT_COMMITLOG_ROLE": "sync_master"}  # a message is acknowledged when another copy has it, too
        store = stack.enter_context(reput_up.store(tmp_path / "data", *reput_up.WITH_GATEWAY, *flags, extra=extra))
        for shard in shards_of(store):
            await asyncio.to_thread(in_sync, shard)
        file = str(tmp_path / "data" / "shards.toml")
        made = await asyncio.to_thread(store.json, "shards", "create", "orders", "--queues", "8", "--shards-file", file)
        assert {row["shard"] for row in made} == {"a", "b"}
        async with grpc.aio.insecure_channel(store.door) as channel:
            client = Caller(channel)
            sent = [await send(client, number) for number in range(COUNT // 2)]
            (leader,) = [row for row in rows(shards_of(store)[0]) if row["state"] == "LEADING"]
            os.kill(store.child("commitlog", leader["target"].rpartition(":")[2]), signal.SIGKILL)
            sent += [await send(client, number) for number in range(COUNT // 2, COUNT)]
            found = await received(client, set(sent))
        assert {one.system_properties.queue_id // 4 for one in found} == {0, 1}, "both shards have messages"


async def send(client: Caller, number: int) -> bytes:
    body = b"%d" % number
    await accepted(client, client.message("orders", body, message_group=f"key-{number % KEY_COUNT}"))
    return body


def shards_of(store: reput_up.Store) -> list[reput_up.Store]:
    """Return each shard as a store of its own: the copies of a shard follow each other in the targets."""
    found = []
    for first in (0, COPY_COUNT):
        targets = {
            name: ",".join(target.split(",")[first : first + COPY_COUNT]) for name, target in store.targets.items()
        }
        found.append(reput_up.Store(store.process, store.data_dir, targets, store.log))
    return found


async def received(client: Caller, bodies: set[bytes]) -> list[Any]:
    """Receive and acknowledge until all of these bodies have come."""
    found: list[wire.Message] = []
    async with asyncio.timeout(LIMIT_S):
        while {one.body for one in found} < bodies:
            messages = await client.receive("orders", wait_s=2)
            found += messages
            if messages:
                await client.ack("orders", *(one.system_properties.receipt_handle for one in messages))
    return found
