# SPDX-License-Identifier: Apache-2.0
"""The requests that the load generator sends."""

from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.common.v1 import message_pb2

from bench import batches
from bench.load.timing import percentiles_ms

MEMORY = message_pb2.DURABILITY_MEMORY


def test_batches_have_about_the_size_that_was_asked_for() -> None:
    """A batch is never larger than requested, and not much smaller, unless a single message is larger."""
    for body_size_bytes in (100, 1_024, 65_536):
        batch = batches.build(body_size_bytes=body_size_bytes, batch_size_bytes=1 << 20, durability=MEMORY, variant=0)
        assert 0.9 * (1 << 20) < len(batch.data) <= 1 << 20
        assert len(AppendRequest.FromString(batch.data).messages) == batch.message_count
    assert batches.build(body_size_bytes=1_024, batch_size_bytes=1, durability=MEMORY, variant=0).message_count == 1


def test_numbered_batches_never_repeat_a_key() -> None:
    """Keys and unique ids count up from batch to batch, and nothing else changes."""
    source = batches.NumberedBatches(body_size_bytes=50, batch_size_bytes=2_000, durability=MEMORY)
    properties = []
    for _ in range(3):
        batch = source()
        request = AppendRequest.FromString(batch.data)
        assert len(request.messages) == batch.message_count
        properties += [message.property_string.decode() for message in request.messages]
    assert source.next_number == len(properties)
    for number, text in enumerate(properties):
        assert f"KEYS\x01{batches.order_key(number)} user-" in text
        assert f"UNIQ_KEY\x01{batches.UNIQUE_ID_PREFIX}{number:012d}\x02" in text


def test_messages_take_the_topics_in_turn() -> None:
    """Over the batches each topic gets the same number of messages, and its queues take turns."""
    topics = [f"t{number}" for number in range(5)]
    messages: list[AppendMessage] = []
    for variant in range(3):
        batch = batches.build(
            body_size_bytes=10, batch_size_bytes=1_500, durability=MEMORY, variant=variant, topics=topics
        )
        messages += AppendRequest.FromString(batch.data).messages
    assert len(messages) > 4 * 5
    for index, message in enumerate(messages):
        assert (message.topic, message.queue_id) == (topics[index % 5], index // 5 % 4)


def test_percentiles_are_values_that_occurred() -> None:
    """A percentile is the measured value of the nearest rank, and never a value between two measured values."""
    assert percentiles_ms([0.001 * number for number in range(1, 1_002)]) == {
        "p50": 501.0,
        "p99": 991.0,
        "p999": 1_000.0,
    }
