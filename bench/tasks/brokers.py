# SPDX-License-Identifier: Apache-2.0
"""The brokers that are measured, each with an empty folder, as URLs of Kombu."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import store
from bench.peers.registry import peer_of

REPUT = "Reput"
EACH_WAITS = "Reput, ack_delay_s=0"
REDIS = "Redis"
CELERY = "Celery alone"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs: its URL, and the processes that serve it."""

    url: str
    pids: tuple[int, ...] = ()


@contextmanager
def _reput(folder: Path, option: str = "") -> Iterator[Broker]:
    with store.running(folder, "async") as served, store.delivering(served) as (delivery, pid):
        others = f"indexer={served.indexer}&janitor={served.janitor}&delivery={delivery}"
        yield Broker(f"reput://{served.commitlog}?{others}{option}", (*served.pids, pid))


@contextmanager
def _each_waits(folder: Path) -> Iterator[Broker]:
    with _reput(folder, "&ack_delay_s=0") as broker:
        yield broker


@contextmanager
def _redis(folder: Path) -> Iterator[Broker]:
    with peer_of("redis").running(folder, "async") as served:
        yield Broker(f"redis://{served.target}/0", tuple(served.pids))


@contextmanager
def _celery(folder: Path) -> Iterator[Broker]:  # noqa: ARG001 - a broker in the worker's memory has no files
    yield Broker("memory://")


BROKERS: Mapping[str, Callable[[Path], AbstractContextManager[Broker]]] = {
    REPUT: _reput,
    EACH_WAITS: _each_waits,
    REDIS: _redis,
    CELERY: _celery,
}
