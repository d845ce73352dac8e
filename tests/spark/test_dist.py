# SPDX-License-Identifier: Apache-2.0
"""The files of `make spark-dist` bring the connector to a cluster whose Pythons do not have it."""

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc

from tests.support.fixed_service import REPOSITORY, FixedService
from tests.support.patience import LIMIT_S

pytest.importorskip("pyspark")

import py4j

from tests.support.spark_cluster import HOME, SparkCluster
from tools import spark_dist

pytestmark = pytest.mark.spark
JOB = REPOSITORY / "tests" / "support" / "spark_dist_job.py"
MESSAGE_COUNT = 500


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[str]:
    """Address of an Indexer with a topic."""
    log = FixedService("commitlog", tmp_path / "log").start()
    indexer = FixedService("indexer", tmp_path / "indexes", "--commitlog-target", log.target).start()
    messages = [append_pb.AppendMessage(topic="orders", body=b"%d" % number) for number in range(MESSAGE_COUNT)]
    with grpc.insecure_channel(log.target) as channel:
        append_service_pb2_grpc.AppendServiceStub(channel).Append(
            append_pb.AppendRequest(messages=messages), timeout=LIMIT_S
        )
    yield indexer.target
    indexer.stop()
    log.stop()


@pytest.fixture
def pyspark_alone(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH with only PySpark."""
    directory = tmp_path / "pyspark-alone"
    directory.mkdir()
    (directory / "pyspark").symlink_to(HOME)
    (directory / "py4j").symlink_to(Path(py4j.__file__).parent)
    return directory


def submitted(cluster: SparkCluster, cwd: Path, environment: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Run the job with spark-submit, and return its output."""
    kept = {name: text for name, text in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        [HOME / "bin" / "spark-submit", "--master", cluster.url, *arguments],
        cwd=cwd,
        env=kept | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"} | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, "\n".join(line for line in done.stderr.splitlines() if " INFO " not in line)[-6000:]
    found: dict[str, Any] = json.loads(lines[-1])
    assert (found["batch"], found["stream"]) == (MESSAGE_COUNT, MESSAGE_COUNT)
    return found


def test_py_files(tmp_path: Path, indexer: str, pyspark_alone: Path) -> None:
    """Pythons with pyarrow, grpcio and protobuf get the connector from the zip archive."""
    archive = spark_dist.py_files(tmp_path)
    spark_dist.install(tmp_path / "bare", has_connector=False)
    environment = {
        "PYSPARK_PYTHON": str(tmp_path / "bare" / "bin" / "python"),
        "PYTHONPATH": f"{archive}:{pyspark_alone}",
    }
    with SparkCluster(tmp_path) as cluster:
        arguments = ("--py-files", str(archive), str(JOB), indexer, "orders", str(tmp_path))
        found = submitted(cluster, tmp_path, environment, *arguments)
    assert archive.name in found["driver"]
    assert found["connector"].startswith(f"./{archive.name}/")  # the worker's archive, in the task's directory


def test_environment_archive(tmp_path: Path, indexer: str, pyspark_alone: Path) -> None:
    """Workers unpack the environment and run its Python, and the driver has it unpacked in its directory."""
    archive = spark_dist.environment(tmp_path)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "environment", filter="fully_trusted")  # its Python is a link to the machine's
    environment = {"PYSPARK_PYTHON": "./environment/bin/python", "PYTHONPATH": str(pyspark_alone)}
    with SparkCluster(tmp_path) as cluster:
        arguments = ("--archives", f"{archive}#environment", str(JOB), indexer, "orders", str(tmp_path))
        found = submitted(cluster, tmp_path, environment, *arguments)
    assert found["driver"].startswith(str(tmp_path / "environment"))
    assert found["python"].startswith(str(tmp_path / "work"))
    assert found["connector"].startswith(str(tmp_path / "work"))
