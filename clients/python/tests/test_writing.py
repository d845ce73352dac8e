# SPDX-License-Identifier: Apache-2.0
"""The writer's queue, step by step and without a network: numbers, bytes, outcomes, the window."""

import grpc
import pytest
from google.rpc import status_pb2
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendOutcome, AppendRequest, AppendResult
from reput_client import AlreadyExistsError, DeadlineExceededError, NewMessage
from reput_client.core.encode import Encoder
from reput_client.core.writing import Batch, WriteQueue, Written

from clients.python.tests.support import status

MEMORY, DISK = 1, 2
DIFFERS = status(grpc.StatusCode.ALREADY_EXISTS, "WRITER_CONTENT_DIFFERS")


def batch(topic: str, size_bytes: int = 50) -> Batch:
    """Return a batch with a single message."""
    message = AppendMessage(topic=topic, body=bytes(size_bytes - 7 - len(topic) + 1))
    return Batch(AppendRequest(messages=[message]).SerializeToString(), 1)


def write_queue(*topics: str, writer_id: str = "w", first_sequence: int = 0) -> WriteQueue:
    """A queue with a batch for each topic."""
    queue = WriteQueue(writer_id, first_sequence=first_sequence, durability=DISK, window_bytes=120)
    for topic in topics:
        queue.add(batch(topic))
    return queue


def sent(queue: WriteQueue, first: int = 0) -> list[tuple[str, str, int, int]]:
    """Topic, writer, number and durability of each request."""
    requests = [AppendRequest.FromString(raw) for raw in queue.requests(first)]
    return [(r.messages[0].topic, r.writer.id, r.writer.sequence, r.durability) for r in requests]


def stored(durability: int = DISK, *, is_repeated: bool = False) -> AppendOutcome:
    return AppendOutcome(result=AppendResult(durability=durability, is_repeated=is_repeated))


def refused(error: status_pb2.Status) -> AppendOutcome:
    return AppendOutcome(error=error)


def test_numbers_go_on_without_a_gap() -> None:
    """Kept batches keep their numbers and their bytes when earlier batches are settled."""
    queue = write_queue("a", "b", "c", first_sequence=7)
    assert sent(queue) == [("a", "w", 7, DISK), ("b", "w", 8, DISK), ("c", "w", 9, DISK)]
    assert sent(queue, -1) == [("c", "w", 9, DISK)]
    before = queue.requests()
    queue.on_outcome(stored())
    assert queue.requests() == before[1:]
    assert (queue.first_sequence, queue.is_idle) == (8, False)
    queue.on_outcome(stored(is_repeated=True))
    queue.on_outcome(stored())
    size_bytes = 3 * len(batch("a").messages)
    assert (queue.first_sequence, queue.is_idle, queue.written) == (10, True, Written(3, size_bytes, 1))


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [(refused(DIFFERS), AlreadyExistsError), (stored(MEMORY), DeadlineExceededError)],
    ids=["refused", "too weak"],
)
def test_a_batch_that_is_not_stored_as_asked_is_kept(outcome: AppendOutcome, kind: type[Exception]) -> None:
    """It stays the oldest batch, and is sent again with the same bytes."""
    queue = write_queue("a", "b")
    before = queue.requests()
    with pytest.raises(kind):
        queue.on_outcome(outcome)
    assert (queue.requests(), queue.first_sequence, queue.written) == (before, 0, Written())


def test_an_answer_too_many() -> None:
    """No batch is there to be stored by it."""
    with pytest.raises(ValueError, match="more batches"):
        write_queue().on_outcome(stored())


def test_the_window_counts_what_has_no_outcome() -> None:
    """It is over while more than so many bytes are kept."""
    queue = write_queue("a", "b")
    assert not queue.is_over_window
    queue.add(batch("c"))
    assert queue.is_over_window
    queue.on_outcome(stored())
    assert not queue.is_over_window
    queue.clear()
    assert (queue.is_idle, queue.requests()) == (True, [])


def test_another_name() -> None:
    """The kept batches are numbered from 0 again."""
    queue = write_queue("a", "b", "c")
    queue.on_outcome(stored())
    queue.rename("other")
    assert sent(queue) == [("b", "other", 0, DISK), ("c", "other", 1, DISK)]


def test_without_a_writer() -> None:
    """Requests name none, and a weaker durability has to do, since asking again would store twice."""
    queue = write_queue("a", writer_id="")
    assert not AppendRequest.FromString(queue.requests()[0]).HasField("writer")
    queue.on_outcome(stored(MEMORY))
    assert (queue.is_idle, queue.weak_count) == (True, 1)


def test_the_same_messages_are_the_same_batch() -> None:
    """No value comes from a clock or from chance."""
    chunks = [Encoder(makes_unique_ids=False, makes_born_times=False).encode(NewMessage("t", b"b")) for _ in "12"]
    assert chunks[0] == chunks[1]
    assert AppendRequest.FromString(chunks[0][0]).messages[0].born_time_ms == 0
