# SPDX-License-Identifier: Apache-2.0
"""The audit of a running store: its file, the list of the command line, and refusals of a stranger."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import LIMIT_S
from tests.support.reput_up import REPUT, environment, run_here, start, store

pytestmark = pytest.mark.e2e


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of an audit file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_calls_and_refusals_are_in_the_file_and_in_the_list(tmp_path: Path) -> None:
    """Each call of an operator has a line with the values before and after, and a stranger's calls are counted."""
    path = tmp_path / "audit.log"
    (tmp_path / "operator").write_text("token-of-an-operator\n")
    settings = {
        "REPUT_COMMITLOG_AUDIT_FILE": str(path),
        "REPUT_COMMITLOG_OPERATOR_TOKEN_FILE": str(tmp_path / "operator"),
    }
    with store(tmp_path / "store", extra=settings) as running:
        log = ("--commitlog", running.targets["commitlog"], "--token-file", str(tmp_path / "operator"))
        running.json("topics", "create", "orders", "--read-queues", "2", "--write-queues", "2")
        assert running.run("topics", "create", "orders").code != 0
        assert run_here(*log, "topics", "update", "orders", "--write-queues", "1").code == 0
        assert run_here(*log, "topics", "purge", "orders", "--yes").code == 0
        for _ in range(5):
            assert running.run("topics", "delete", "orders", "--yes").code != 0
        assert run_here(*log, "topics", "delete", "orders", "--yes").code == 0
        listed = run_here(*log, "audit", "list", "--target", running.targets["commitlog"], "--json")
        assert listed.code == 0, listed
        denied = running.run("audit", "list", "--target", running.targets["commitlog"])
        assert "needs the token of an operator" in denied.errors
        table = run_here(*log, "audit", "list", "--target", running.targets["commitlog"])
        assert "TopicService/DeleteTopic" in table.output
        following = start(
            [*REPUT, *log, "audit", "list", "--target", running.targets["commitlog"], "--follow", "--json"],
            stdout=subprocess.PIPE,
        )
        assert following.stdout is not None
        assert json.loads(following.stdout.readline()) == listed.rows[0]
        running.json("topics", "create", "later")
        while json.loads(following.stdout.readline()).get("topics") != ["later"]:
            pass
        following.terminate()
        following.wait(LIMIT_S)
        following.stdout.close()
    written = lines_of(path)
    created, failed, updated, purged, refused, deleted = listed.rows
    assert written[:6] == listed.rows
    # the token of this user on this machine is a service's for this log, which has another token for operators
    assert (created["event"], created["subject"], created["after"]["write_queue_count"]) == ("call", "service", 2)
    assert (updated["subject"], updated["topics"]) == ("operator", ["orders"])
    assert (updated["before"]["write_queue_count"], updated["after"]["write_queue_count"]) == (2, 1)
    begins = {name: int(purged[name]["begin_physical_offset"]) for name in ("before", "after")}
    assert begins["before"] <= begins["after"]
    assert (refused["event"], refused["reason"]) == ("refusal", "NOT_PERMITTED")
    assert (deleted["code"], deleted["before"]["name"]) == ("OK", "orders")
    assert (failed["code"], failed["topics"], "after" in failed) == ("ALREADY_EXISTS", ["orders"], False)
    assert all(line["address"].startswith("ipv4:127.0.0.1:") for line in written if line["event"] != "repeated")
    counted = {line["method"].rpartition("/")[2]: line["count"] for line in written if line["event"] == "repeated"}
    assert counted == {"DeleteTopic": 4}, "the counts are written at the stop"
    assert "token-of-an-operator" not in path.read_text()


def test_a_full_disk_stops_no_call(tmp_path: Path) -> None:
    """With an audit file on a full disk the store works, and its log says that lines are lost."""
    with store(tmp_path / "store", extra={"REPUT_COMMITLOG_AUDIT_FILE": "/dev/full"}) as running:
        for number in range(3):
            running.json("topics", "create", f"t{number}")
        listed = running.json("audit", "list", "--service", "commitlog")
        assert [line["topics"] for line in listed] == [["t0"], ["t1"], ["t2"]]
        result = running.stop()
    assert result.errors.count("audit lines are lost") == 1


def test_a_directory_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    """The start ends with exit code 2 and a line that names the setting."""
    command = [*REPUT, "serve", "commitlog", "--data-dir", str(tmp_path), "--port", "0", "--metrics-port", "0"]
    done = subprocess.run(
        [*command, "--audit-file", str(tmp_path / "no/audit")],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "audit_file" in done.stderr
