# SPDX-License-Identifier: Apache-2.0
"""A gateway before three copies of a log, each with its Delivery: it finds the leader, also after a failover."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from libs.runtime.errors import ConfigError
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.e2e.test_up import in_sync, rows
from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store
from tests.support.served_gateway import Caller, Served, gateway, receive_request

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK = wire.CODE_OK
TOPIC = "t"
AGAIN_S = 10
"""The time after which messages that were not settled are delivered again."""


@contextlib.asynccontextmanager
async def copies(directory: Path) -> AsyncIterator[tuple[Store, Served]]:
    """Three stores that elect a leader, and a gateway with the addresses of all of them."""
    with contextlib.ExitStack() as stack:
        etcd = EtcdServer(directory / "etcd")
        etcd.start()
        stack.callback(etcd.kill)
        flags = ("--replicas", "3", "--etcd", etcd.target, "--delivery", "--delivery-port", "0")
        running = stack.enter_context(store(directory / "data", *flags))
        in_sync(running)
        async with gateway(running.targets["commitlog"], running.targets["delivery"]) as served:
            yield running, served


async def accepted(call: Any) -> Any:
    """Repeat a call until it is answered with OK, as libraries do while there is no leader."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            answer = await call()
            if answer.status.code == OK:
                return answer
            assert answer.status.code in (wire.CODE_HA_NOT_AVAILABLE, wire.CODE_PROXY_TIMEOUT), answer
            await asyncio.sleep(0.2)


async def received(caller: Caller, bodies: set[bytes]) -> dict[bytes, str]:
    """Receive until all of these bodies have arrived, and return the handle of each message."""
    found: dict[bytes, str] = {}
    request = receive_request(TOPIC, wait_s=2, invisible_duration=Duration(seconds=AGAIN_S))
    async with asyncio.timeout(LIMIT_S):
        while not bodies <= found.keys():
            parts = [part async for part in caller.receiving(request)]
            messages = [part.message for part in parts if part.HasField("message")]
            found |= {one.body: one.system_properties.receipt_handle for one in messages}
    return found


@pytest.mark.skipif(ETCD is None, reason=NO_ETCD)
async def test_the_leader_is_lost(tmp_path: Path) -> None:
    """After a failover no settled message is delivered again, and messages that were not settled are.

    A receipt handle from before the failover is valid after it.
    """
    async with copies(tmp_path) as (running, served):
        caller = served.caller()
        first = [b"%d" % number for number in range(8)]
        for body in first:
            await accepted(lambda body=body: caller.send(TOPIC, caller.message(TOPIC, body)))
        handles = await received(caller, set(first))
        await accepted(lambda: caller.ack(TOPIC, *(handles[body] for body in first[:3])))

        leader = next(row for row in rows(running) if row["state"] == "LEADING")
        os.kill(running.child("commitlog", leader["target"].rsplit(":", 1)[1]), signal.SIGKILL)

        await accepted(lambda: caller.ack(TOPIC, *(handles[body] for body in first[3:6])))
        await accepted(lambda: caller.send(TOPIC, caller.message(TOPIC, b"later")))
        again = await received(caller, {b"6", b"7", b"later"})
        assert again.keys() == {b"6", b"7", b"later"}


async def test_a_list_has_no_gaps() -> None:
    """An empty address in a list of addresses is refused at the start."""
    with pytest.raises(ConfigError, match="delivery_target"):
        async with gateway("127.0.0.1:1", "127.0.0.1:1,"):
            pass
