# SPDX-License-Identifier: Apache-2.0
"""Tests of the logs of a service: one object a line, readable lines at a terminal, no secret in a traceback."""

import json
import logging
from collections.abc import Iterator

import pytest
from grpc._cython.cygrpc import ExecuteBatchError

from libs.runtime.watch.logs import set_up_logging


@pytest.fixture
def _logging() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers, root.level)
    yield
    root.handlers, root.level = before


@pytest.mark.usefixtures("_logging")
def test_json_logs_are_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A logger writes level, service, audit fields and traceback in an object; lines below the level are dropped."""
    set_up_logging("indexer", "info", "auto")
    logging.getLogger("a").info("applied\n%d", 3, extra={"audit": {"call": "DeleteTopic"}, "fields": {"port": 7}})
    logging.getLogger("b").warning("slow %s", "disk")
    logging.getLogger("b").debug("unseen")
    try:
        int("bad")
    except ValueError:
        logging.getLogger("b").exception("failed")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"], line["service"]) for line in lines] == [
        ("applied\n3", "info", "indexer"),
        ("slow disk", "warning", "indexer"),
        ("failed", "error", "indexer"),
    ]
    assert lines[0]["port"] == 7
    assert lines[0]["audit"] == {"call": "DeleteTopic"}
    assert lines[0]["timestamp"].endswith("Z")
    assert lines[2]["exception"].endswith("ValueError: invalid literal for int() with base 10: 'bad'")


@pytest.mark.usefixtures("_logging")
def test_a_caller_that_went_away_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """gRPC's log of an unsent answer is dropped; its other errors, and Reput's, are logged."""
    set_up_logging("indexer", "info", "json")
    for name, error in (
        ("grpc._cython.cygrpc", ExecuteBatchError("Failed execute_batch")),
        ("grpc._cython.cygrpc", ValueError("another")),
        ("services.indexer", ExecuteBatchError("ours")),
    ):
        try:
            raise error
        except (ExecuteBatchError, ValueError):
            logging.getLogger(name).exception("%s raised in core by servicer method [%s]", type(error).__name__, "/m")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["exception"].rpartition(": ")[2] for line in lines] == ["another", "ours"]


@pytest.mark.usefixtures("_logging")
def test_console_logs_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """The console form has a line for each record, without an object around it and without letters that steer."""
    set_up_logging("indexer", "debug", "console")
    logging.getLogger("a").debug("topic %s", "a\x1b[2J\nb", extra={"fields": {"port": 7100}})
    line = capsys.readouterr().err
    assert line.endswith(" debug    indexer: topic a\\x1b[2J\\nb port=7100\n")


@pytest.mark.usefixtures("_logging")
def test_tracebacks_show_no_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """A secret in a variable of a failing function does not reach the log."""
    set_up_logging("commitlog", "info", "json")
    token = "sec" + "ret-token"
    try:
        {}["missing"]
    except KeyError:
        logging.getLogger("test").exception("failed")
    line = capsys.readouterr().err
    assert "KeyError: 'missing'" in json.loads(line)["exception"]
    assert token not in line
