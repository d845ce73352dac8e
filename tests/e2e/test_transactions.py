# SPDX-License-Identifier: Apache-2.0
"""Messages that are visible when their producer commits them, over real services."""

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest, AppendStateRequest
from reput.common.v1.message_pb2 import StoredMessage
from reput.delivery.v1 import transaction_service_pb2 as pb
from reput.indexer.v1.queue_service_pb2 import PullRequest

from libs.formats.records.host import Host
from libs.formats.records.message_id import encode_offset_id
from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.patience import LIMIT_S
from tests.support.served_delivery import Client
from tests.support.service_process import Refusal
from tests.support.surroundings import free_port

TOPIC, GROUP = "orders", "shop"
COMMIT, ROLLBACK = pb.RESOLUTION_COMMIT, pb.RESOLUTION_ROLLBACK
QUICKLY = ("--transaction-first-check-ms", "300", "--transaction-check-interval-ms", "1500")


LATER = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}


class Stack:
    """A store with a Delivery."""

    def __init__(self, log: served_commitlog.Client, index: served_indexer.Client, client: Client) -> None:
        self.log, self.index, self.client = log, index, client

    async def begin(self, name: str, *, topic: str = TOPIC, group: str = GROUP, **properties: str) -> str:
        """Append a half message. Returns its offset id."""
        own = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": name, "TAGS": "t", **properties}
        message = AppendMessage(topic=topic, queue_id=1, body=name.encode(), properties=own, flag=7)
        result = (await self.log.append.Append(AppendRequest(messages=[message]))).result
        host = Host(result.store_host.address, result.store_host.port)
        return encode_offset_id(host, result.physical_offsets[0])

    async def end(self, name: str, how: pb.Resolution.ValueType = COMMIT, group: str = GROUP) -> bool:
        """End a transaction. Return whether it was ended so before."""
        request = pb.EndTransactionRequest(transaction_id=name, producer_group=group, resolution=how)
        return bool((await self.client.transactions.EndTransaction(request)).is_repeated)

    async def checks(self, *groups: str, wait_s: int = 20) -> Sequence[pb.TransactionCheck]:
        """Receive checks, as a producer does."""
        request = pb.ReceiveChecksRequest(producer_groups=groups or [GROUP], wait=Duration(seconds=wait_s))
        return (await self.client.transactions.ReceiveChecks(request)).checks

    async def open(self) -> list[pb.Transaction]:
        """List the open transactions."""
        request = pb.ListTransactionsRequest()
        return list((await self.client.transactions.ListTransactions(request)).transactions)

    async def until_open(self, count: int) -> None:
        """Wait until this many transactions are open."""
        while True:
            if len(await self.open()) == count:
                return
            await asyncio.sleep(0.02)

    async def stored(self, topic: str = TOPIC, queue_id: int = 1, wait_s: int = 0) -> list[StoredMessage]:
        """Return the messages that every consumer sees."""
        found: list[StoredMessage] = []
        while True:
            wait = Duration(seconds=0 if found else wait_s)
            request = PullRequest(topic=topic, queue_id=queue_id, queue_offset=len(found), wait=wait)
            pulled = await self.index.queues.Pull(request)
            found += pulled.messages
            if len(found) >= pulled.max_queue_offset or not pulled.messages:
                return found


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with (
        served_commitlog.served(tmp_path) as (commitlog, log),
        served_indexer.served(tmp_path, f"127.0.0.1:{commitlog.server.port}") as (indexer, index),
        served_delivery.process(
            f"127.0.0.1:{commitlog.server.port}", f"127.0.0.1:{indexer.server.port}", *QUICKLY
        ) as delivery,
        served_delivery.client_of(f"127.0.0.1:{delivery.port}") as client,
    ):
        yield Stack(log, index, client)


async def refused(call: object) -> Refusal:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call  # type: ignore[misc]
    return Refusal(error.value)


async def test_a_message_is_seen_as_rocketmq_stores_it_when_it_is_committed(stack: Stack) -> None:
    """Before the commit neither the topic nor a group has the message.

    Afterwards it is there once, and has the properties of a transaction.
    """
    offset_id = await stack.begin("a", **LATER)
    assert await stack.begin("b", **LATER) != offset_id
    assert await stack.stored() == []
    assert await stack.end(offset_id) is False
    (message,) = await stack.stored(wait_s=20)
    (half, _) = await stack.stored("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert (message.body, message.flag, message.sys_flag & 0xC) == (b"a", 7, 0x8)
    assert message.prepared_transaction_offset == half.physical_offset
    assert half.sys_flag & 0xC == 0
    kept = {"TRAN_MSG": "true", "PGROUP": GROUP, "REAL_TOPIC": TOPIC, "REAL_QID": "1", "UNIQ_KEY": "a", "TAGS": "t"}
    assert dict(message.properties) == kept | LATER
    (said,) = await stack.stored("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
    assert (said.body, said.properties["TAGS"], said.queue_id) == (b"0", "d", 0)
    assert await stack.end("b", ROLLBACK) is False
    assert (await stack.end("a"), await stack.end("b", ROLLBACK)) == (True, True)
    refusal = await refused(stack.end("a", ROLLBACK))
    assert (refusal.reason, refusal.metadata["ended_as"]) == ("TRANSACTION_ENDED", "commit")
    assert (await refused(stack.end("c"))).reason == "TRANSACTION_NOT_FOUND"
    assert len(await stack.stored()) == 1


async def test_a_producer_that_says_nothing_is_asked(stack: Stack) -> None:
    """A transaction without an end is checked at any member of its producer group, with its message.

    After the producer's end it is closed.
    """
    await stack.begin("a", KEYS="k")
    (transaction,) = await stack.open()
    assert (transaction.transaction_id, transaction.producer_group, transaction.topic) == ("a", GROUP, TOPIC)
    assert not await stack.checks("other", wait_s=1)
    (check,) = await stack.checks()
    assert (check.transaction.transaction_id, check.transaction.check_count > 0) == ("a", True)
    assert (check.message.topic, check.message.queue_id, check.message.body) == (TOPIC, 1, b"a")
    assert check.message.properties["KEYS"] == "k"
    (again,) = await stack.checks()  # no producer answered
    assert again.transaction.check_count > check.transaction.check_count
    await stack.end("a")
    (message,) = await stack.stored(wait_s=20)
    assert int(message.properties["TRANSACTION_CHECK_TIMES"]) >= again.transaction.check_count
    assert not any(name.startswith("REPUT") for name in message.properties)
    assert await stack.open() == []


async def test_what_is_wrong_is_named(stack: Stack) -> None:
    """Each bad field of each request is named, and so is another producer group.

    A message that the log does not take is named, too.
    """
    await stack.begin("a")
    bad = (
        (pb.EndTransactionRequest(resolution=COMMIT), "transaction_id"),
        (pb.EndTransactionRequest(transaction_id="x" * 256, resolution=COMMIT), "transaction_id"),
        (pb.EndTransactionRequest(transaction_id="a"), "resolution"),
        (pb.EndTransactionRequest(transaction_id="a", producer_group="q", resolution=COMMIT), "producer_group"),
    )
    for request, field in bad:
        refusal = await refused(stack.client.transactions.EndTransaction(request))
        assert (refusal.reason, refusal.field) == ("BAD_ARGUMENT", field)
    asks = (
        (pb.ReceiveChecksRequest(), "producer_groups"),
        (pb.ReceiveChecksRequest(producer_groups=[""]), "producer_groups[0]"),
        (pb.ReceiveChecksRequest(producer_groups=["g"], check_count_max=-1), "check_count_max"),
        (pb.ReceiveChecksRequest(producer_groups=["g"], wait=Duration(seconds=-1)), "wait"),
    )
    for ask, field in asks:
        assert (await refused(stack.client.transactions.ReceiveChecks(ask))).field == field
    too_long = pb.ListTransactionsRequest(producer_group="x" * 256)
    assert (await refused(stack.client.transactions.ListTransactions(too_long))).field == "producer_group"
    # A half message for a queue that its topic does not have, as after a reduction of its queues.
    own = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "b", "REAL_TOPIC": TOPIC, "REAL_QID": "9"}
    half = AppendMessage(topic="RMQ_SYS_TRANS_HALF_TOPIC", queue_id=0, body=b"b", properties=own)
    await stack.log.append.AppendState(AppendStateRequest(messages=[half]))
    refusal = await refused(stack.end("b"))
    assert (refusal.reason, refusal.metadata["transaction_id"]) == ("TRANSACTION_REFUSED", "b")
    assert await stack.end("b", ROLLBACK) is False
    assert await stack.end("a") is False


async def test_a_list_has_pages(stack: Stack) -> None:
    """A list has the oldest transaction first, and each page continues after the page before."""
    for name in "abc":
        await stack.begin(name, group=f"g-{name == 'c'}", **LATER)
    async with asyncio.timeout(LIMIT_S):
        await stack.until_open(3)
    names: list[str] = []
    request = pb.ListTransactionsRequest(page_size=2)
    while True:
        page = await stack.client.transactions.ListTransactions(request)
        names += [one.transaction_id for one in page.transactions]
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    assert names == ["a", "b", "c"]
    only = await stack.client.transactions.ListTransactions(pb.ListTransactionsRequest(producer_group="g-True"))
    assert [one.transaction_id for one in only.transactions] == ["c"]


class Kills:
    """Producers that end or forget their transactions, and answer when they are asked, during kills."""

    def __init__(self, stack: Stack, names: Sequence[str]) -> None:
        self.stack = stack
        self.names = names
        self.stored: set[str] = set()
        self.is_over = False

    def how(self, name: str) -> pb.Resolution.ValueType:
        """Return the producer's answer, which is always the same for a transaction."""
        return COMMIT if int(name) % 3 else ROLLBACK

    async def produce(self, mine: Sequence[str]) -> None:
        """Send the messages, and end three of four transactions."""
        for name in mine:
            while True:  # an answer that is lost makes it send again
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self.stack.begin(name)
                    self.stored.add(name)
                    break
                await asyncio.sleep(0.05)
            if int(name) % 4:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self.stack.end(name, self.how(name))

    async def answer(self) -> None:
        """Answer checks until the test is over."""
        while not self.is_over:
            with contextlib.suppress(grpc.aio.AioRpcError):
                for check in await self.stack.checks(wait_s=1):
                    name = check.transaction.transaction_id
                    await self.stack.end(name, self.how(name))
            await asyncio.sleep(0.05)


async def test_kills_show_each_commit_once_and_leave_no_orphan(tmp_path: Path) -> None:
    """Through kills of log, index and Delivery each committed message is there once, and no transaction stays open.

    Half messages are sent twice, ends are lost, and some transactions are forgotten.
    """
    chance = random.Random(11)
    ports = [free_port() for _ in range(3)]
    log_target, index_target, target = (f"127.0.0.1:{port}" for port in ports)
    starts = [
        lambda: served_commitlog.Process.start(tmp_path, "--port", str(ports[0])),
        lambda: served_indexer.Process.start(tmp_path, "--port", str(ports[1]), "--commitlog-target", log_target),
        lambda: served_delivery.Process.start(
            tmp_path,
            *("--port", str(ports[2]), "--commitlog-target", log_target, "--indexer-target", index_target),
            *(*QUICKLY, "--transaction-check-count-max", "10000"),  # none is given up on a machine that is busy
        ),
    ]
    processes = [await (await start()).wait_serving() for start in starts]
    names = [str(number) for number in range(400)]
    try:
        async with (
            processes[0].client() as log,  # type: ignore[attr-defined]
            processes[1].client() as index,  # type: ignore[attr-defined]
            served_delivery.client_of(target) as client,
        ):
            kills = Kills(Stack(log, index, client), names)
            producing = [asyncio.create_task(kills.produce(names[start::4])) for start in range(4)]
            answering = asyncio.create_task(kills.answer())
            for _ in range(6):
                await asyncio.sleep(chance.uniform(0.1, 0.6))
                which = chance.choice([0, 1, 2, 2])
                await processes[which].end(signal.SIGKILL)
                processes[which] = await (await starts[which]()).wait_serving()
            await asyncio.gather(*producing)
            async with asyncio.timeout(LIMIT_S):
                await _until_none_is_open(kills.stack, set(names))
            kills.is_over = True
            await answering
            seen = Counter(message.body.decode() for message in await kills.stack.stored())
    finally:
        for process in reversed(processes):
            await process.end(signal.SIGKILL)
    assert kills.stored == set(names)
    assert seen == Counter(name for name in names if kills.how(name) == COMMIT)


async def _until_none_is_open(stack: Stack, names: set[str]) -> None:
    """Wait until the index has all halves, and all of them are ended."""
    while True:
        with contextlib.suppress(grpc.aio.AioRpcError):
            halves = await stack.stored("RMQ_SYS_TRANS_HALF_TOPIC", 0)
            ended = {int(one.body) for one in await stack.stored("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)}
            is_whole = {one.body.decode() for one in halves} == names
            if is_whole and not await stack.open() and {one.queue_offset for one in halves} == ended:
                return
        await asyncio.sleep(0.3)
