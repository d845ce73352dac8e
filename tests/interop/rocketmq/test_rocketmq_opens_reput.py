# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own store opens a store that Reput wrote."""

import asyncio
import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, Reader, check_equal
from tests.interop.rocketmq.index_bytes import IndexBytes, index_bytes
from tests.interop.rocketmq.reput_store import STORE_HOST, ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import Sizes
from tests.interop.rocketmq.writing import killed, write_reput

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

KILLED_COUNT_MAX = 5_000


@dataclass(frozen=True)
class Case:
    """Reput's settings, and the way in which it ended."""

    name: str
    is_killed: bool = False
    crc_property: bool = True
    store_host: str = STORE_HOST
    store_host_hex: str = "7f000001:10911"


IPV6 = Case("no-crc-ipv6", False, False, "[2001:db8::5]:10911", f"20010db8{5:024x}:10911")
CASES = (Case("clean"), IPV6, Case("killed", is_killed=True))


@dataclass(frozen=True)
class Written:
    """A store as Reput left it, its content, and the indexes that Reput makes of it."""

    directory: Path
    history: History
    indexes: IndexBytes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, message_count: int, sizes: Sizes) -> Callable[[Case], Written]:
    """Write the store of a case, once for both releases."""

    async def write(case: Case, count: int, directory: Path) -> Written:
        history, drafts = History(), Drafts(1, store_host=case.store_host_hex)
        options: dict[str, Any] = {"crc_property": case.crc_property, "store_host": case.store_host}
        async with ReputStore.running(directory, sizes, **options) as reput:
            write = functools.partial(write_reput, reput, history, drafts)
            if case.is_killed:
                await killed(history, write, count, reput.kill())
            else:
                await write(count)
                await reput.settle()
                await reput.stop()
        if not case.is_killed:
            return Written(directory, history, index_bytes(directory, sizes))
        recovered = directory.with_name("recovered")
        shutil.copytree(directory, recovered)
        async with ReputStore.served(recovered, sizes, **options) as reput:
            await reput.settle()
            history.adopt(await reput.walk())
            await Reader(history, sizes).check_reput(reput)
        return Written(directory, history, index_bytes(recovered, sizes))

    @functools.cache
    def of(case: Case) -> Written:
        count = min(message_count, KILLED_COUNT_MAX) if case.is_killed else message_count
        return asyncio.run(write(case, count, tmp_path_factory.mktemp(case.name) / "store"))

    return of


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest, written: Callable[[Case], Written]) -> tuple[Case, Written]:
    """A case and its store."""
    return request.param, written(request.param)


async def test_every_message_is_there(tmp_path: Path, major: str, case: tuple[Case, Written], sizes: Sizes) -> None:
    """RocketMQ finds every message by queue offset, physical offset, key and time.

    It uses the indexes that Reput wrote, and changes none of them.
    """
    how, written = case
    store = tmp_path / "store"
    shutil.copytree(written.directory, store)
    verify = how.crc_property and major == "5"
    async with await RocketMqStore.open(major, store, sizes, verify_crc=verify, index_safe=how.is_killed) as rocketmq:
        await Reader(written.history, sizes).check_rocketmq(rocketmq)
    if not how.is_killed:
        _check_indexes(written.indexes, index_bytes(store, sizes))


async def test_rocketmq_builds_the_same_indexes(
    tmp_path: Path, major: str, case: tuple[Case, Written], sizes: Sizes
) -> None:
    """From the log alone RocketMQ makes Reput's queue files byte for byte, and the same index entries."""
    _, written = case
    store = tmp_path / "store"
    shutil.copytree(written.directory / "commitlog", store / "commitlog")
    (store / "abort").touch()
    async with await RocketMqStore.open(major, store, sizes) as rocketmq:
        await Reader(written.history, sizes).check_rocketmq(rocketmq)
    built = index_bytes(store, sizes)
    if major == "4":
        _check_indexes(written.indexes.without_delivery_times(), built.without_delivery_times())
    else:
        _check_indexes(written.indexes, built)


def _check_indexes(expected: IndexBytes, found: IndexBytes) -> None:
    check_equal(expected.queue_files, found.queue_files, "queue files")
    check_equal(expected.entries, found.entries, "index entries")
