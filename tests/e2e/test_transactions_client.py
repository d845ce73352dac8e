# SPDX-License-Identifier: Apache-2.0
"""Transactions by the Python client, synchronous and asynchronous, and by the command line."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import reput_client
from reput_client import FailedPreconditionError, NotFoundError, aio

from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Result, run_here

Targets = dict[str, str]
TOPIC, GROUP = "orders", "shop"


@pytest.fixture
async def targets(tmp_path: Path) -> AsyncIterator[Targets]:
    """The addresses of a store's services."""
    async with (
        served_commitlog.served(tmp_path) as (commitlog, _),
        served_indexer.served(tmp_path, f"127.0.0.1:{commitlog.server.port}") as (indexer, _),
        served_delivery.process(f"127.0.0.1:{commitlog.server.port}", f"127.0.0.1:{indexer.server.port}") as delivery,
    ):
        ports = {"commitlog": commitlog.server.port, "indexer": indexer.server.port, "delivery": delivery.port}
        yield {name: f"127.0.0.1:{port}" for name, port in ports.items()}


async def seen(client: aio.AsyncClient, count: int) -> list[bytes]:
    """Return the bodies that consumers see, once there are this many."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            queues = [queue async for queue in client.queues.list(TOPIC)]
            pulls = [await client.queues.pull(TOPIC, queue.queue_id, 0) for queue in queues]
            bodies = sorted(message.body for pulled in pulls for message in pulled.messages)
            if len(bodies) >= count:
                return bodies
            await asyncio.sleep(0.05)


async def test_a_block_commits_and_an_exception_rolls_back(targets: Targets) -> None:
    """A block without an error commits, an exception rolls back, and a repeated end has no effect."""
    async with aio.connect(**targets) as client:
        begin = client.transactions.begin
        async with await begin(TOPIC, b"a", group=GROUP, tag="t", keys=["k"], check_after_s=600) as first:
            assert await seen(client, 0) == []
        with pytest.raises(ZeroDivisionError):
            async with await begin(TOPIC, b"b", group=GROUP, check_after_s=600) as second:
                raise ZeroDivisionError
        again = await begin(TOPIC, b"c", group=GROUP, unique_id=first.id)  # it is the first transaction
        assert await seen(client, 1) == [b"a"]
        await first.commit()
        await second.rollback()
        with pytest.raises(FailedPreconditionError) as late:
            await again.rollback()
        assert (late.value.reason, late.value.metadata["ended_as"]) == ("TRANSACTION_ENDED", "commit")
        with pytest.raises(NotFoundError):
            await client.transactions.commit("never")
        for wrong in ({"group": ""}, {"group": GROUP, "check_after_s": 0}):
            with pytest.raises(ValueError, match=r"group|check_after_s"):
                await begin(TOPIC, b"d", **wrong)  # type: ignore[arg-type]


def of_threads(targets: Targets) -> tuple[str, list[str]]:
    """Do the same with the synchronous client. Return the id of an open transaction, and the bodies of the checks."""
    with reput_client.connect(**targets) as client:
        with client.transactions.begin(TOPIC, b"a", group=GROUP):
            pass
        left = client.transactions.begin(TOPIC, b"left", group="other", check_after_s=600)
        client.transactions.begin(TOPIC, b"asked", group=GROUP, check_after_s=1)
        asked = []
        for check in client.transactions.checks(GROUP):
            asked.append(check.message.body.decode())
            check.commit()
            break
        return left.id, asked


async def test_a_producer_is_asked_and_an_operator_ends_what_is_left(targets: Targets) -> None:
    """A member of the group answers.

    `reput tx` lists open transactions, and ends a transaction after a confirmation.
    """
    left, asked = await asyncio.to_thread(of_threads, targets)
    assert asked == ["asked"]
    variables = {f"REPUT_CLIENT_{name.upper()}_TARGET": target for name, target in targets.items()}

    async def reput(*words: str) -> Result:
        return await asyncio.to_thread(run_here, "tx", *words, extra=variables)

    (row,) = (await reput("list", "--json")).rows
    assert (row["id"], row["group"], row["topic"], row["check_count"]) == (left, "other", TOPIC, 0)
    assert (await reput("list", "--group", GROUP, "--json")).rows == []
    table = (await reput("list")).output
    assert (left in table, row["begun"] in table) == (True, False), "times for people are short"
    refused = await reput("resolve", left, "--commit")
    assert (refused.code, "commit the transaction" in refused.errors) == (2, True)
    done = await reput("resolve", left, "--commit", "--yes", "--json")
    assert json.loads(done.output) == {"id": left, "ended_as": "commit"}
    late = await reput("resolve", left, "--rollback", "--yes")
    assert (late.code, late.errors.startswith("TRANSACTION_ENDED")) != (0, False)
    async with aio.connect(**targets) as client:
        assert await seen(client, 3) == [b"a", b"asked", b"left"]
