# SPDX-License-Identifier: Apache-2.0
"""Three stores that are copies: offsets of groups and delayed messages outlive the machine of an Indexer."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reput_client import ConsumerOffset, NotFoundError, UnavailableError, connect

from tests.e2e.test_up import in_sync, rows
from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e


def until(is_so: Callable[[], bool], what: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, what()
        time.sleep(0.1)


def indexers(running: Store) -> list[str]:
    """Return the addresses of the Indexers."""
    return running.targets["indexer"].split(",")


def offset_at(target: str, group: str) -> int | None:
    """Return the offset of a group at an Indexer, None if it knows no offset, -1 if it is unavailable."""
    with connect(indexer=target) as client:
        try:
            return client.groups.get(group, "orders", 0).queue_offset
        except NotFoundError:
            return None
        except UnavailableError:
            return -1


@pytest.mark.skipif(ETCD is None, reason=NO_ETCD)
def test_the_leader_s_machine_is_lost(tmp_path: Path) -> None:
    """The leader's machine and its Indexer's directory are lost.

    The other Indexers know the groups, and deliver the delayed messages, each once.
    """
    with contextlib.ExitStack() as stack:
        etcd = EtcdServer(tmp_path / "etcd")
        etcd.start()
        stack.callback(etcd.kill)
        flags = ("--replicas", "3", "--etcd", etcd.target, "--delivery", "--delivery-port", "0")
        running = stack.enter_context(store(tmp_path / "data", *flags))
        in_sync(running)
        for number in range(20):
            running.json("put", "orders", f"d{number}", "--delay-level", "1", "--durability", "replicated")
        leader = next(row for row in rows(running) if row["state"] == "LEADING")
        leader_port = leader["target"].rsplit(":", 1)[1]
        first, *_ = indexers(running)
        with connect(indexer=first) as client:
            client.groups.commit("billing", [ConsumerOffset("orders", 0, 7)])
        until(lambda: [offset_at(each, "billing") for each in indexers(running)] == [7] * 3, lambda: rows(running))

        name = leader["replica_id"]
        number = [each.rsplit(":", 1)[1] for each in running.targets["commitlog"].split(",")].index(leader_port)
        indexer_port = indexers(running)[number].rsplit(":", 1)[1]
        for service, port in (("commitlog", leader_port), ("indexer", indexer_port)):
            os.kill(running.child(service, port), signal.SIGKILL)
        shutil.rmtree(tmp_path / "data" / name / "consumequeue", ignore_errors=True)
        for gone in ("config/consumerOffset.json", "config/consumerOffset.json.bak", "reput/shared_state"):
            (tmp_path / "data" / name / gone).unlink(missing_ok=True)

        others = [each for each in indexers(running) if not each.endswith(indexer_port)]
        assert [offset_at(each, "billing") for each in others] == [7, 7]
        in_sync(running)
        until(lambda: offset_at(indexers(running)[number], "billing") == 7, lambda: rows(running))
        wanted = {f"d{number}" for number in range(20)}
        found: list[str] = []

        def all_are_there() -> bool:
            found[:] = [row["body"] for row in running.json("tail", "orders", "--count", "1000")]
            return wanted <= set(found)

        until(all_are_there, lambda: sorted(found))
        time.sleep(2)
        assert all_are_there()
        assert sorted(found) == sorted(wanted), "none comes twice"
