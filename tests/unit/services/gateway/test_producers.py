# SPDX-License-Identifier: Apache-2.0
"""The client that is asked about a topic."""

import pytest

from services.gateway.engine import producers
from services.gateway.engine.producers import Producers


def asking(subject: Producers, *clients: str) -> list[tuple[str, str]]:
    """Connect clients. Returns the list of their questions from now on."""
    asked: list[tuple[str, str]] = []
    for client in clients:
        subject.connected(client, lambda question, client=client: asked.append((client, question)))  # type: ignore[misc]
    return asked


def test_those_that_publish_a_topic_are_asked_in_turn() -> None:
    """Clients that publish a topic are asked in turn; clients without the topic or without a stream are not."""
    subject = Producers()
    asked = asking(subject, "a", "b", "c")
    subject.publishes("a", ["t", "u"])
    subject.publishes("b", ["t"])
    subject.publishes("d", ["t", "v"])
    assert [subject.ask("t", "q") for _ in range(4)] == [True] * 4
    assert sorted(asked) == [("a", "q"), ("a", "q"), ("b", "q"), ("b", "q")]
    assert (subject.ask("v", "q"), subject.ask("w", "q")) == (False, False)
    assert sorted(subject.topics()) == ["t", "u"]


def test_those_that_have_transactions_are_asked_first() -> None:
    """Clients with transactions of the topic are asked first.

    Other publishers only while no such client is connected.
    """
    subject = Producers()
    asked = asking(subject, "plain", "begins", "ends", "elsewhere")
    for client in ("plain", "begins", "ends", "elsewhere"):
        subject.publishes(client, ["t", "u"])
    subject.publishes("begins", ["t"], in_transactions=True)
    subject.publishes("ends", ["t"], in_transactions=True)
    subject.publishes("elsewhere", ["u"], in_transactions=True)
    subject.publishes("begins", ["t"])  # its settings come again
    assert [subject.ask("t", "q") for _ in range(4)] == [True] * 4
    assert sorted(client for client, _ in asked) == ["begins", "begins", "ends", "ends"]
    asked.clear()
    for client in ("begins", "ends"):
        subject.connected(client, asked.append)
        subject.disconnected(client, asked.append)
    assert [subject.ask("t", "q") for _ in range(2)] == [True] * 2
    assert sorted(client for client, _ in asked) == ["elsewhere", "plain"]


def test_each_topic_has_its_own_turn() -> None:
    """Questions about two topics in turn reach all clients of both."""
    subject = Producers()
    asked = asking(subject, "a", "b")
    for client in ("a", "b"):
        subject.publishes(client, ["t", "u"])
    for _ in range(2):
        subject.ask("t", "t")
        subject.ask("u", "u")
    assert sorted(asked) == [("a", "t"), ("a", "u"), ("b", "t"), ("b", "u")]


def test_clients_with_streams_are_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with a stream is known also if all places are taken by clients with streams."""
    monkeypatch.setattr(producers, "CLIENT_COUNT_MAX", 2)
    subject = Producers()
    asked = asking(subject, "a", "b", "c")
    subject.publishes("c", ["t"])
    assert subject.ask("t", "q")
    assert asked == [("c", "q")]


def test_a_stream_that_took_the_place_of_another_one_counts() -> None:
    """A client's newer stream counts, and the end of its former stream changes nothing."""
    subject = Producers()
    asked: list[str] = []

    def first(question: str) -> None:
        raise AssertionError(question)

    subject.publishes("a", ["t"])
    subject.connected("a", first)
    subject.connected("a", asked.append)
    subject.disconnected("a", first)
    assert subject.ask("t", "q")
    subject.disconnected("a", asked.append)
    assert not subject.ask("t", "q")
    assert asked == ["q"]


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit clients without a stream are removed first, and of a client's topics the oldest."""
    monkeypatch.setattr(producers, "CLIENT_COUNT_MAX", 2)
    monkeypatch.setattr(producers, "TOPIC_COUNT_MAX", 2)
    subject = Producers()
    asking(subject, "a")
    subject.publishes("a", ["t", "u", "v"])
    for number in range(5):
        subject.publishes(f"silent-{number}", ["x"])
    assert subject.topics() == ["u", "v"]
    asking(subject, "silent-4", "silent-0")
    assert sorted(subject.topics()) == ["u", "v", "x"]
