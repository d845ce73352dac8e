# SPDX-License-Identifier: Apache-2.0
"""`reput index rebuild`, by the running Indexer and without it.

The indexes are the same afterwards, after any event.
"""

import asyncio
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from reput.indexer.v1 import queue_service_pb2 as queue_pb
from reput.indexer.v1 import rebuild_service_pb2 as rebuild_pb

from libs.machine.failpoints import armed
from libs.machine.posix_fs import PosixFs
from tests.crash.index_contents import differences
from tests.e2e.test_indexer_service import T, new, put, store
from tests.support import reput_up
from tests.support.fake_log import FakeLog
from tests.support.indexer import write_log
from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, SEGMENT_SIZE_BYTES, Store, environment, run_here
from tests.support.served_indexer import Client
from tests.support.service_process import Refusal

pytestmark = pytest.mark.e2e

SMALL = {
    "REPUT_INDEXER_QUEUE_FILE_SIZE_BYTES": "2000",
    "REPUT_INDEXER_INDEX_SLOT_COUNT": "500",
    "REPUT_INDEXER_INDEX_ENTRY_CAPACITY": "700",
}
MESSAGE_COUNT = 3_000
ARMED = """
import sys
from libs.machine.failpoints import arm_text
arm_text(sys.argv.pop(1))
from cli.main import main
sys.exit(main())
"""


async def test_the_running_indexer_rebuilds(tmp_path: Path) -> None:
    """During a rebuild calls are refused, and so is a second rebuild.

    A watcher may leave. Afterwards all messages are found.
    """
    async with store(tmp_path) as (log, client):
        await put(log, client, *[new(index, index % 3) for index in range(900)])
        with armed("create.before_rename", "sleep:300@2"):
            call = client.rebuilds.RebuildIndexes(rebuild_pb.RebuildIndexesRequest())
            first = await call.read()
            assert not first.is_done
            status = await client.status()
            assert not status.is_complete
            for ask in (
                client.queues.Pull(queue_pb.PullRequest(topic=T)),
                client.queues.ListQueues(queue_pb.ListQueuesRequest()),
                client.queues.GetQueueRange(queue_pb.GetQueueRangeRequest(topic=T)),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await ask
                assert (Refusal(caught.value).code, Refusal(caught.value).reason) == (
                    grpc.StatusCode.UNAVAILABLE,
                    "RECOVERING",
                )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.rebuilds.RebuildIndexes(rebuild_pb.RebuildIndexesRequest()).read()
            assert Refusal(caught.value).reason == "RUN_IN_PROGRESS"
            call.cancel()
        result = await put(log, client, *[new(index, 0) for index in range(100)])
        await client.wait_indexed(result.physical_offsets[-1] + 1)
        answer = await client.queues.Pull(
            queue_pb.PullRequest(topic=T, message_count_max=4_000, size_bytes_max=1 << 22)
        )
        assert len(answer.messages) == 400
        async with asyncio.timeout(LIMIT_S):
            while not (states := await rebuilt(client)):  # noqa: ASYNC110 - the first one is still syncing
                await asyncio.sleep(0.01)
        assert (states[-1].is_done, states[-1].applied_record_count) == (True, 1_000)
        assert states[-1].rebuilt_physical_offset == states[-1].target_physical_offset


async def rebuilt(client: Client) -> list[rebuild_pb.RebuildIndexesResponse]:
    """Return all states of a rebuild, or nothing if another rebuild is under way."""
    try:
        return [state async for state in client.rebuilds.RebuildIndexes(rebuild_pb.RebuildIndexesRequest())]
    except grpc.aio.AioRpcError as error:
        if Refusal(error).reason != "RUN_IN_PROGRESS":
            raise
        return []


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store at rest after a clean stop, with several files of everything, as the live Indexer built it."""
    data_dir = tmp_path_factory.mktemp("before") / "store"
    with reput_up.store(data_dir, extra=SMALL) as running:
        lines = (f'{{"topic": "T", "body": "{i}", "keys": ["k{i % 50}", "a{i}"]}}\n' for i in range(MESSAGE_COUNT))
        running.json("put", "T", "--file", "-", standard_input="".join(lines))
        until_indexed(running)
    return data_dir


@pytest.fixture
def filled(before: Path, tmp_path: Path) -> Path:
    """A copy of the store at rest."""
    subprocess.run(["cp", "-r", before, tmp_path / "store"], check=True)
    return tmp_path / "store"


def until_indexed(running: Store) -> None:
    """Wait until the Indexer has indexed the whole log."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        (states,) = running.json("status")
        log, indexer = states["commitlog"], states["indexer"]
        if indexer["is_complete"] and indexer["indexed_physical_offset"] == log["max_physical_offset"]:
            return
        assert time.monotonic() < end_s, states
        time.sleep(0.05)


def offline(data_dir: Path, *arguments: str) -> reput_up.Result:
    """`reput index rebuild` without any service."""
    return run_here("index", "rebuild", "--data-dir", str(data_dir), "--yes", "--json", *arguments, extra=SMALL)


def assert_equal(data_dir: Path, before: Path) -> None:
    """Check that the queue files are the same byte for byte, and that the entries are the same."""
    assert differences(PosixFs(), data_dir, before, index_slot_count=500) == []


def test_offline_equals_live(filled: Path, before: Path) -> None:
    """The command builds the indexes that the Indexer had built. The next start replays nothing and answers at once."""
    result = offline(filled)
    assert result.code == 0, result
    (report,) = result.rows
    assert (report["record_count"], report["log_end"]) == (MESSAGE_COUNT, "clean end")
    assert report["index_file_count"] > 5
    assert_equal(filled, before)
    with reput_up.store(filled, extra=SMALL) as running:
        until_indexed(running)
        (states,) = running.json("status")
        assert states["indexer"]["applied_record_count"] == 0
        assert len(running.json("query", "key", "T", "k7")) == MESSAGE_COUNT // 50


def test_a_kill_in_the_middle(filled: Path, before: Path) -> None:
    """After SIGKILL at any sync of a file another rebuild has the same result.

    So has the next start of the Indexer.
    """
    for failpoint in ("create.before_rename=kill@3", "write_atomic.after_rename=kill@1", "file.sync=kill@5"):
        done = subprocess.run(
            [sys.executable, "-c", ARMED, failpoint, "index", "rebuild", "--data-dir", str(filled), "--yes"],
            env=environment(SMALL),
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done
        if not failpoint.startswith("file"):
            assert offline(filled).code == 0
            assert_equal(filled, before)
    with reput_up.store(filled, extra=SMALL) as running:
        until_indexed(running)
    assert_equal(filled, before)


def test_refusals(filled: Path) -> None:
    """A rebuild of a directory in use, or of a directory without a log, is refused with its code and reason."""
    with reput_up.store(filled, extra=SMALL):
        result = offline(filled)
        assert (result.code, result.errors.split()[1]) == (5, "STORE_LOCKED:")
    (filled / "empty").mkdir()
    result = offline(filled / "empty")
    assert (result.code, result.errors.split()[1]) == (1, "FILE:")
    assert offline(filled / "none").code == 2


def test_more_queues_than_descriptors(tmp_path: Path) -> None:
    """With eight times as many queues as file descriptors a rebuild succeeds, and the store is sound."""
    log, data_dir = FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES), tmp_path / "store"
    for index in range(3_000):
        log.append("T", index * 7 % 1_000, keys=f"k{index}")
    write_log(log, PosixFs(), data_dir / "commitlog")
    command = [*REPUT, "index", "rebuild", "--data-dir", str(data_dir), "--yes", "--json"]
    low = f"ulimit -n 128 && exec {shlex.join(command)}"
    ended = subprocess.run(["bash", "-c", low], env=environment(SMALL), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    assert (report["record_count"], report["queue_count"]) == (3_000, 1_000)
    verified = run_here("verify", str(data_dir), "--index-slots", "500", "--json")
    assert verified.code == 0, verified


def test_damage_is_named(filled: Path) -> None:
    """A record with a changed byte ends a rebuild with code 6 and the record's place."""
    segment = filled / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[50_000] ^= 1
    segment.write_bytes(data)
    result = offline(filled)
    assert (result.code, result.errors.split()[1]) == (6, "DAMAGED:")
    assert segment.name in result.errors


def test_online(filled: Path, before: Path) -> None:
    """Without --data-dir the running Indexer rebuilds while appends continue.

    Without an Indexer the command fails with UNAVAILABLE.
    """
    with reput_up.store(filled, extra=SMALL) as running:
        (report,) = running.json("index", "rebuild", "--yes")
        assert report["record_count"] == MESSAGE_COUNT
        assert len(running.json("query", "key", "T", "k7")) == MESSAGE_COUNT // 50
    assert_equal(filled, before)
    result = run_here("index", "rebuild", "--yes", extra={"REPUT_CLIENT_INDEXER_TARGET": "127.0.0.1:1"})
    assert (result.code, result.errors.split()[1]) == (4, "UNAVAILABLE:")


def test_the_indexer_is_killed_in_the_middle(filled: Path, before: Path) -> None:
    """After a kill during a rebuild the next start continues it, and answers only when it is complete."""
    with reput_up.store(filled, extra={**SMALL, "REPUT_FAILPOINTS": "index_file.before_sync=kill@3"}) as running:
        result = running.run("index", "rebuild", "--yes")
        assert result.code == 4, result
    with reput_up.store(filled, extra=SMALL) as running:
        assert len(running.json("query", "key", "T", "k7")) == MESSAGE_COUNT // 50
        until_indexed(running)
    assert_equal(filled, before)


def test_ready_is_said_when_commands_are_answered(filled: Path) -> None:
    """A store that lost its indexes is ready when they are complete, and not when its services listen."""
    shutil.rmtree(filled / "consumequeue")
    slow = {**SMALL, "REPUT_FAILPOINTS": "create.before_rename=sleep:50"}
    with reput_up.store(filled, extra=slow) as running:
        (states,) = running.json("status")
        assert states["indexer"]["is_complete"]
        assert len(running.json("query", "key", "T", "k7")) == MESSAGE_COUNT // 50
