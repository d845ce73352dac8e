# SPDX-License-Identifier: Apache-2.0
"""The shards that a share consumer asks: in turn, and again after a failure."""

import grpc
from reput_client import InvalidArgumentError, NotFoundError, RetryPolicy, UnavailableError
from reput_client.core.shards.receiving import TOPIC_LOOK_S, ShardTurns

AWAY = UnavailableError("no line", code=grpc.StatusCode.UNAVAILABLE)
UNKNOWN = NotFoundError("no topic", code=grpc.StatusCode.NOT_FOUND, reason="TOPIC_NOT_FOUND")


def turns() -> ShardTurns:
    """The turns of two shards, without jitter."""
    return ShardTurns("receiving", ["a", "b"], RetryPolicy(chance=lambda: 0.0))


def test_a_shard_that_is_away_waits_longer_each_time() -> None:
    """The other shard is asked meanwhile. The failure of all shards is an error, which names a shard."""
    shards = turns()
    assert shards.due(0.0) == ["a", "b"]
    assert shards.on_failure("b", AWAY, 0.0) is None
    assert (shards.due(0.0), shards.due(0.06), shards.failure) == (["a"], ["a", "b"], None)
    assert shards.on_failure("b", AWAY, 0.06) is None
    assert shards.due(0.12) == ["a"]
    assert shards.on_failure("a", AWAY, 0.1) is None
    assert shards.wait_s(0.1) > 0
    assert str(shards.failure) == "UNAVAILABLE: shard b: no line"
    shards.on_success("b", 0.2)
    assert shards.failure is None
    assert [outage.failed_count for outage in shards.outages] == [1, 2]


def test_a_shard_without_the_topic_is_no_outage() -> None:
    """It is asked now and then."""
    shards = turns()
    assert shards.on_failure("a", UNKNOWN, 0.0) is None
    assert (shards.due(0.5), shards.due(TOPIC_LOOK_S)) == (["b"], ["a", "b"])
    assert [outage.failed_count for outage in shards.outages] == [0, 0]


def test_a_permanent_refusal_names_its_shard() -> None:
    """It ends the receive."""
    error = turns().on_failure("b", InvalidArgumentError("bad tags", code=grpc.StatusCode.INVALID_ARGUMENT), 0.0)
    assert isinstance(error, InvalidArgumentError)
    assert error.metadata["shard"] == "b"
