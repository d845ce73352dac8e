# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/spark.md, docs/spark-from-kafka.md and docs/python.md run as written, and print their output."""

import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import grpc
import pytest
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc
from reput.indexer.v1 import index_service_pb2, index_service_pb2_grpc

from tests.support.fixed_service import REPOSITORY, FixedService

pytest.importorskip("pyspark")
pytest.importorskip("matplotlib")

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
DOCS = REPOSITORY / "docs"
PATHS = re.compile(r'"(lake/[\w.]+|\w+\.checkpoint)"')
"""Paths of Spark, whose process may have begun in another directory."""


class Step(NamedTuple):
    """A block of code, and its output."""

    line: int
    code: str
    printed: str


def steps(page: str, start: int, end: int) -> list[Step]:
    """Return the blocks of a part of a page, in order."""
    found: list[Step] = []
    for block in re.finditer(r"```(python|text)\n(.*?)```", page[start:end], re.DOTALL):
        if block[1] == "python":
            found.append(Step(page.count("\n", 0, start + block.start()) + 2, block[2], ""))
        else:
            found[-1] = found[-1]._replace(printed=block[2])
    return found


class Store(NamedTuple):
    """The addresses of a store's services and of its gateway."""

    log: str
    indexer: str
    gateway: str


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty store, and an empty directory to work in."""
    log = FixedService("commitlog", tmp_path / "log").start()
    indexer = FixedService("indexer", tmp_path / "indexes", "--commitlog-target", log.target).start()
    services = ("--commitlog-target", log.target, "--indexer-target", indexer.target)
    gateway = FixedService("gateway", tmp_path / "gateway", *services).start()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):
        yield Store(log.target, indexer.target, gateway.target)
    gateway.stop()
    indexer.stop()
    log.stop()


def wait_until_indexed(store: Store) -> None:
    """Wait until the Indexer has indexed the whole log."""
    with grpc.insecure_channel(store.log) as log, grpc.insecure_channel(store.indexer) as indexer:
        log_stub, index_stub = (
            log_service_pb2_grpc.LogServiceStub(log),
            index_service_pb2_grpc.IndexServiceStub(indexer),
        )
        end = log_stub.GetStatus(log_service_pb2.GetStatusRequest()).max_physical_offset
        while index_stub.GetStatus(index_service_pb2.GetStatusRequest()).indexed_physical_offset < end:
            time.sleep(0.02)


def run(name: str, found: list[Step], store: Store, work: Path) -> None:
    """Run every block in turn, in a single session."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for step in found:
        code = PATHS.sub(lambda found: f'"{work / found[1]}"', step.code.replace("127.0.0.1:8081", store.gateway))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * step.line + code, str(DOCS / name), "exec"), names)
        assert printed.getvalue() == step.printed, f"{name}, line {step.line}"
        wait_until_indexed(store)
    names["spark"].stop()


def test_recipes(store: Store, tmp_path: Path) -> None:
    """The recipes of the guide run as written, and print the output below them."""
    page = (DOCS / "spark.md").read_text()
    start = page.index("\n## Recipes")
    found = steps(page, start, page.index("\n## ", start + 1))
    assert sum(step.code.count("spark.read") > 0 for step in found) >= 10
    run("spark.md", found, store, tmp_path / "work")
    assert {path.name for path in (tmp_path / "work").iterdir()} >= {"lake", "orders.png", "split.checkpoint"}
    assert (tmp_path / "work" / "orders.png").stat().st_size > 5_000


def test_coming_from_kafka(store: Store, tmp_path: Path) -> None:
    """The blocks of the page for users of Spark's Kafka source run as written, and print the output below them."""
    page = (DOCS / "spark-from-kafka.md").read_text()
    found = steps(page, 0, len(page))
    assert len(found) == 4
    run("spark-from-kafka.md", found, store, tmp_path / "work")


def test_the_page_for_python_teams(store: Store, tmp_path: Path) -> None:
    """The blocks about Spark of the page for Python teams run as written, and print the output below them."""
    page = (DOCS / "python.md").read_text()
    found = steps(page, page.index("\n## Spark"), len(page))
    assert len(found) == 2
    run("python.md", found, store, tmp_path / "work")
