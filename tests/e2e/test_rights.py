# SPDX-License-Identifier: Apache-2.0
"""A store with a rights file: two subjects, own and foreign topics and groups, through the command and the clients."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client
from reput_client import AuthenticationError

from tests.support.patience import LIMIT_S
from tests.support.reput_up import Result, Store, run, store

pytestmark = pytest.mark.e2e

RIGHTS = """
[[subjects]]
name = "shop"
token_file = "shop.token"
[[subjects]]
name = "billing"
token_file = "billing.token"

[[rules]]
subjects = ["shop"]
allow = ["produce", "query"]
topics = ["orders-*"]
[[rules]]
subjects = ["shop"]
allow = ["produce"]
groups = ["shop"]
[[rules]]
subjects = ["billing"]
allow = ["consume"]
topics = ["orders-*"]
groups = ["billing"]
[[rules]]
subjects = ["billing"]
allow = ["administer"]
groups = ["billing"]
"""
SERVICES = ("COMMITLOG", "INDEXER", "JANITOR", "DELIVERY")
NOT_PERMITTED = 5


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rights file and the tokens."""
    found = tmp_path_factory.mktemp("rights")
    for name in ("shop", "billing"):
        (found / f"{name}.token").write_text(f"{name}-token\n")
        (found / f"{name}.token").chmod(0o600)
    (found / "rights.toml").write_text(RIGHTS)
    return found


@pytest.fixture(scope="module")
def running(directory: Path) -> Iterator[Store]:
    """A store whose services all have the rights file."""
    extra = {f"REPUT_{service}_RIGHTS_FILE": str(directory / "rights.toml") for service in SERVICES}
    with store(directory / "store", "--delivery", "--delivery-port", "0", extra=extra) as running:
        yield running


def call(running: Store, directory: Path, subject: str, *command: str) -> Result:
    """Run a command with the token of a subject. Without a subject, with the operator's, as the command does."""
    token = ("--token-file", str(directory / f"{subject}.token")) if subject else ()
    return running.run(*token, *command)


def refused(result: Result, subject: str, what: str) -> bool:
    """Whether the command was refused for this reason."""
    assert result.code == NOT_PERMITTED, result
    return f"NOT_PERMITTED: {subject} may not {what}" in result.errors


def test_two_subjects_with_own_and_foreign_topics(running: Store, directory: Path) -> None:
    """A producer produces and queries its topics, a consumer consumes them in its group, and neither does more."""
    shop = call(running, directory, "shop", "put", "orders-1", "a", "b", "--json")
    assert shop.code == 0, shop
    result = call(running, directory, "shop", "put", "payments", "x")
    assert refused(result, "shop", "produce topic payments"), result
    assert refused(call(running, directory, "billing", "put", "orders-1", "x"), "billing", "produce topic orders-1")
    consumed = call(
        running, directory, "billing", "consume", "orders-1", "--group", "billing", "--count", "2", "--json"
    )
    assert sorted(row["body"] for row in consumed.rows) == ["a", "b"]
    result = call(running, directory, "shop", "consume", "orders-1", "--group", "billing", "--count", "1")
    assert refused(result, "shop", "use group billing"), result
    result = call(running, directory, "billing", "consume", "orders-1", "--group", "other", "--count", "1")
    assert refused(result, "billing", "use group other")
    for command in (("groups", "pause", "billing"), ("groups", "delete", "billing", "--yes")):
        assert call(running, directory, "shop", *command).code == NOT_PERMITTED
    result = call(running, directory, "shop", "put", "%DLQ%billing", "garbage")
    assert refused(result, "shop", "produce topic %DLQ%billing"), result
    result = call(running, directory, "shop", "topics", "delete", "orders-1", "--yes")
    assert refused(result, "shop", "administer topic orders-1"), result
    assert call(running, directory, "billing", "groups", "pause", "billing").code == 0
    assert call(running, directory, "billing", "groups", "resume", "billing").code == 0
    assert call(running, directory, "", "topics", "get", "orders-1").code == 0


def test_lists_have_own_names_alone(running: Store, directory: Path) -> None:
    """Topics and groups of others are not in the lists of a subject. The operator sees all."""
    assert call(running, directory, "", "put", "secret", "x").code == 0
    assert call(running, directory, "shop", "put", "orders-2", "x").code == 0
    names = {row["name"] for row in call(running, directory, "shop", "topics", "list", "--json").rows}
    assert "orders-2" in names
    assert "secret" not in names
    assert "secret" in {row["name"] for row in call(running, directory, "", "topics", "list", "--json").rows}
    assert refused(call(running, directory, "shop", "pull", "secret"), "shop", "use topic secret")


def test_a_stream_of_a_producer_goes_on_after_a_refusal(running: Store) -> None:
    """A message without the right fails alone: other messages of its batch, and the stream, are not harmed."""
    targets = running.targets
    with (
        reput_client.connect(commitlog=targets["commitlog"], indexer=targets["indexer"], token="shop-token") as client,
        client.producer() as producer,
    ):
        first, denied, second = [producer.send(topic, b"x") for topic in ("orders-3", "payments", "orders-3")]
        with pytest.raises(AuthenticationError, match="shop may not produce topic payments"):
            denied.result(LIMIT_S)
        assert second.result(LIMIT_S).physical_offset > first.result(LIMIT_S).physical_offset


def client(running: Store, subject: str) -> reput_client.Client:
    """A client with the token of a subject."""
    return reput_client.connect(**running.targets, token=f"{subject}-token")


def test_a_consumer_that_keeps_offsets_needs_to_consume_alone(running: Store) -> None:
    """It reads, commits and continues with this right, and gets nothing of a foreign topic."""
    with client(running, "shop") as shop, shop.producer() as producer:
        for body in (b"a", b"b"):
            producer.send("orders-4", body, queue_id=0).result(LIMIT_S)
    with client(running, "billing") as billing:
        for body in (b"a", b"b"):
            with billing.consumer("orders-4", group="billing", start="earliest") as consumer:
                message = next(iter(consumer))
                assert message.body == body
                consumer.commit()
        with (
            pytest.raises(AuthenticationError, match="billing may not use topic payments"),
            billing.consumer("payments", group="billing") as consumer,
        ):
            next(iter(consumer))


def test_transactions_are_of_their_producers(running: Store) -> None:
    """A producer ends the transactions of its group, and no others."""
    with client(running, "shop") as shop, client(running, "billing") as billing:
        transaction = shop.transactions.begin("orders-5", b"x", group="shop", check_after_s=600)
        with pytest.raises(AuthenticationError, match="billing may not administer the store"):
            billing.transactions.rollback(transaction.id)
        end_s = time.monotonic() + LIMIT_S
        while [one.id for one in shop.transactions.list()] != [transaction.id]:  # Delivery reads it a moment later
            assert time.monotonic() < end_s
        assert not list(billing.transactions.list())
        transaction.commit()


def test_a_changed_file_is_in_force_and_a_wrong_one_is_not(running: Store, directory: Path) -> None:
    """The operator gives a right without a restart, and a mistake in the file takes no right away."""
    rights = directory / "rights.toml"
    assert call(running, directory, "shop", "put", "refunds", "x").code == NOT_PERMITTED
    rights.write_text(RIGHTS.replace('topics = ["orders-*"]', 'topics = ["orders-*", "refunds"]', 1))
    end_s = time.monotonic() + LIMIT_S
    while call(running, directory, "shop", "put", "refunds", "x").code != 0:
        assert time.monotonic() < end_s
    rights.write_text(RIGHTS.replace('"produce"', '"writes"', 1))
    time.sleep(1.5)  # services look at most once in a second
    assert call(running, directory, "shop", "put", "refunds", "x").code == 0
    rights.write_text(RIGHTS)
    while call(running, directory, "shop", "put", "refunds", "x").code == 0:
        assert time.monotonic() < end_s


def test_a_service_does_not_start_with_a_wrong_file(tmp_path: Path) -> None:
    """The start ends with a line that names line, field and value."""
    (tmp_path / "rights.toml").write_text(RIGHTS.replace('"produce"', '"writes"', 1).replace("shop.token", "gone"))
    arguments = ("serve", "commitlog", "--data-dir", str(tmp_path / "d"), "--port", "0", "--metrics-port", "0")
    result = run(*arguments, "--rights-file", str(tmp_path / "rights.toml"))
    assert result.code == 2
    assert "rights.toml: line 4: subjects[0].token_file is 'gone': " in result.errors
