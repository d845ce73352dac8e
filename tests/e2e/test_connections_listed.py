# SPDX-License-Identifier: Apache-2.0
"""`reput clients`: members of groups with their connections, and refusals of strangers."""

from pathlib import Path

import pytest
import reput_client

from tests.support.reput_up import run_here, store

pytestmark = pytest.mark.e2e


def test_members_of_groups_are_listed(tmp_path: Path) -> None:
    """A member that shares messages is found in Delivery, and a group that keeps offsets in the Indexer."""
    with store(tmp_path / "store", "--delivery", "--delivery-port", "0") as running:
        running.json("topics", "create", "orders")
        with reput_client.connect(**running.targets) as client:
            with client.share_consumer("orders", group="billing") as member:
                member.receive(1, wait_s=0.1)
            with client.consumer("orders", group="archive") as consumer:
                consumer.commit()
            found = running.json("clients", "--group", "billing")
            assert [(row["service"], row["groups"]) for row in found] == [("delivery", ["billing"])]
            assert found[0]["client"].startswith("reput-python/")
            found = running.json("clients", "--group", "archive")
            assert [row["service"] for row in found] == ["indexer"]
            everything = running.json("clients")
        assert {row["service"] for row in everything} == {"commitlog", "indexer", "janitor", "delivery"}
        assert all(row["received_bytes"] > 0 for row in everything if row["call_count"])
        assert not running.json("clients", "--group", "billing"), "closed connections are gone"
        table = running.run("clients", "--service", "commitlog")
        assert table.code == 0
        assert "service" in table.output


def test_a_stranger_gets_no_list(tmp_path: Path) -> None:
    """The addresses of callers are for operators."""
    (tmp_path / "operator").write_text("token-of-an-operator\n")
    settings = {"REPUT_COMMITLOG_OPERATOR_TOKEN_FILE": str(tmp_path / "operator")}
    with store(tmp_path / "store", extra=settings) as running:
        target = ("--target", running.targets["commitlog"])
        denied = running.run("clients", *target)
        assert denied.code != 0
        assert "needs the token of an operator" in denied.errors
        named = run_here("--token-file", str(tmp_path / "operator"), "clients", *target, "--json")
        assert named.code == 0, named
        assert "operator" in [row["subject"] for row in named.rows]
    away = run_here("clients", "--target", running.targets["commitlog"])
    assert away.code != 0
    assert "no list of connections" in away.errors
