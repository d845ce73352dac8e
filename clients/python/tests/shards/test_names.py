# SPDX-License-Identifier: Apache-2.0
"""Names of shards, encoded messages with a queue, and the merge of messages by store time."""

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendStreamRequest
from reput.common.v1.message_pb2 import StoredMessage
from reput_client import Message, NewMessage, UnavailableError, connect_shards
from reput_client.core.encode import Encoder
from reput_client.core.shards.chunks import key_of, queue_field, with_queue
from reput_client.core.shards.merging import Merge
from reput_client.core.shards.names import at_shard, shard_names


@pytest.mark.parametrize(
    ("shards", "text"),
    [
        ("", "a name is empty"),
        ("a,,b", "a name is empty"),
        ((), "expected the names"),
        ("a,b,a", "a is there twice"),
        (["a", ""], "a name is empty"),
        ("a b", "expected letters, digits, _ and -"),
        (["x" * 101], "expected letters, digits, _ and -"),
    ],
)
def test_names_that_can_not_be_right(shards: object, text: str) -> None:
    """They are refused before the first call."""
    with pytest.raises(ValueError, match=text):
        connect_shards("localhost:8081", shards)  # type: ignore[arg-type]


def test_names() -> None:
    """A sequence, or a text with commas."""
    assert shard_names("a, b,c") == shard_names(["a", "b", "c"]) == ("a", "b", "c")
    with pytest.raises(TypeError, match="shards has 1"):
        shard_names([1])  # type: ignore[list-item]
    with connect_shards("localhost:1", "a,b") as client:
        assert client.shards == ("a", "b")
        assert client.shard("b").channels.options.shard == "b"
        with pytest.raises(ValueError, match="'c' is none of the shards a, b"):
            client.shard("c")


def test_an_error_names_its_shard() -> None:
    """Its class, code and reason stay."""
    error = at_shard("b", UnavailableError("no line", reason="STOPPING", retry_after=2.0))
    assert isinstance(error, UnavailableError)
    assert (error.text, error.metadata, error.retry_after) == ("shard b: no line", {"shard": "b"}, 2.0)


@pytest.mark.parametrize("size", [0, 1, 90, 100, 120, 127, 128, 16_000, 16_300, 3_000_000])
@pytest.mark.parametrize("queue_id", [0, 1, 127, 128, 65_535])
def test_a_queue_is_put_into_an_encoded_message(size: int, queue_id: int) -> None:
    """All other fields stay."""
    chunk, unique_id = Encoder(makes_unique_ids=True).encode(NewMessage("orders", b"x" * size, sharding_key="k"))
    (before,) = AppendStreamRequest.FromString(chunk).messages
    (after,) = AppendStreamRequest.FromString(with_queue(chunk, queue_field(queue_id))).messages
    assert (before.HasField("queue_id"), after.queue_id) == (False, queue_id)
    after.ClearField("queue_id")
    assert after == before
    assert unique_id


@pytest.mark.parametrize(
    ("message", "key"),
    [
        (NewMessage("t", b""), None),
        (NewMessage("t", b"", sharding_key="k"), "k"),
        (NewMessage("t", b"", properties={"__SHARDINGKEY": "k"}), "k"),
        (NewMessage("t", b"", properties={"other": "k"}), None),
        (
            NewMessage("t", b"", property_string="a\x01b\x02__SHARDINGKEY\x01schl\u00fcssel\x02".encode()),
            "schl\u00fcssel",
        ),
        (NewMessage("t", b"", sharding_key=None, property_string=b"a\x01b"), None),
    ],
)
def test_the_key_of_a_message(message: NewMessage, key: str | None) -> None:
    """Wherever the program gives it."""
    assert key_of(message) == key


def at(time_ms: int) -> Message:
    """A message that was stored at this time."""
    return Message(StoredMessage(store_time_ms=time_ms))


@pytest.mark.parametrize("newest_first", [False, True])
def test_messages_are_merged_by_store_time(newest_first: bool) -> None:
    """Each source has the order of the result. A shard's messages can be dropped."""
    times = {"a": [1, 4, 6], "b": [2, 3, 9]}
    merge: Merge[list[int]] = Merge(newest_first=newest_first)
    for shard, own in times.items():
        rest = own[::-1] if newest_first else own[:]
        merge.add(shard, rest, at(rest.pop(0)))
    merged = []
    while (popped := merge.pop()) is not None:
        number, message = popped
        merged.append(message.store_time_ms)
        _, rest = merge.source(number)
        merge.put(number, at(rest.pop(0)) if rest else None)
    assert merged == sorted((1, 2, 3, 4, 6, 9), reverse=newest_first)
    merge.put(0, at(5))
    merge.put(1, at(7))
    merge.drop("a")
    popped = merge.pop()
    assert popped is not None
    assert (popped[1].store_time_ms, merge.pop()) == (7, None)
