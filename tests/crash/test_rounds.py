# SPDX-License-Identifier: Apache-2.0
"""The promises of the rounds, on histories made by hand: each broken promise is reported, and nothing else."""

from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import (
    DURABILITY_LOCAL_DISK,
    DURABILITY_MEMORY,
    DURABILITY_REPLICATED,
    Durability,
    StoredMessage,
)

from libs.formats.epoch import Epoch
from tests.crash.history import Batch, Sent
from tests.crash.rounds.promises import Promises

SIZE_BYTES = 100
ONE_EPOCH, TWO_EPOCHS = [Epoch(1, 0)], [Epoch(1, 0), Epoch(2, SIZE_BYTES)]


def make(*, is_synchronous: bool = True) -> Promises:
    """Promises of logs of which a leads in epoch 1."""
    promises = Promises(is_synchronous)
    promises.leads("a", 1)
    return promises


def batch_of(number: int) -> Batch:
    """A batch of a single message in queue 0."""
    sent = Sent(number, 1, number, "orders", 0, 3, {}, 1, names_host=False)
    return Batch([sent], DURABILITY_REPLICATED)


def acknowledge(
    promises: Promises, number: int, durability: Durability.ValueType, leader: str = "a", epoch: int = 1
) -> None:
    """A leader says that a message, the n-th, is at the n-th place."""
    batch = batch_of(number)
    promises.sends(batch)
    offset = number * SIZE_BYTES
    result = append_pb.AppendResult(
        physical_offsets=[offset], queue_offsets=[number], queue_ids=[0], durability=durability
    )
    promises.acknowledged(batch, result, leader, epoch)


def stored(number: int, place: int | None = None) -> StoredMessage:
    """A message as a log has it, by default at its own place."""
    place = number if place is None else place
    (sent,) = batch_of(number).messages
    return StoredMessage(
        topic="orders",
        body=sent.body,
        flag=number,
        born_time_ms=1,
        physical_offset=place * SIZE_BYTES,
        record_size_bytes=SIZE_BYTES,
        queue_offset=place,
    )


def test_what_is_as_it_was_told() -> None:
    """Nothing is wrong."""
    promises = make()
    for number in range(2):
        acknowledge(promises, number, DURABILITY_REPLICATED)
    promises.sees("a reader", [stored(0), stored(1)])
    assert promises.check([stored(0), stored(1)], ONE_EPOCH, 2 * SIZE_BYTES) == []


def test_a_lost_message() -> None:
    """A REPLICATED message is missed under any leader, a message of less only if no other log led since."""
    for durability, led_since, is_wrong in (
        (DURABILITY_REPLICATED, "b", True),
        (DURABILITY_LOCAL_DISK, "b", False),
        (DURABILITY_LOCAL_DISK, "a", True),
        (DURABILITY_MEMORY, "a", True),
    ):
        promises = make()
        acknowledge(promises, 0, DURABILITY_REPLICATED)
        acknowledge(promises, 1, durability)
        promises.leads(led_since, 2)
        assert bool(promises.check([stored(0)], TWO_EPOCHS, SIZE_BYTES)) is is_wrong
        assert promises.history.forgiven_count == (durability != DURABILITY_REPLICATED)


def test_a_lost_message_in_the_middle_of_an_epoch() -> None:
    """Only the end of an epoch may be given up."""
    promises = make()
    for number in range(3):
        acknowledge(promises, number, DURABILITY_LOCAL_DISK)
    promises.leads("b", 2)
    wrong = promises.check([stored(0), stored(2)], [Epoch(1, 0), Epoch(2, 3 * SIZE_BYTES)], 3 * SIZE_BYTES)
    assert any("message 1 was acknowledged" in what for what in wrong)


def test_lost_power_and_disks() -> None:
    """They excuse the losses that they may cause, until the next check."""
    for durability, happens, is_wrong in (
        (DURABILITY_MEMORY, Promises.loses_power, False),
        (DURABILITY_LOCAL_DISK, Promises.loses_power, True),
        (DURABILITY_LOCAL_DISK, Promises.loses_disk, False),
        (DURABILITY_REPLICATED, Promises.loses_disk, True),
    ):
        promises = make()
        acknowledge(promises, 0, DURABILITY_REPLICATED)
        acknowledge(promises, 1, durability)
        happens(promises, "a")
        promises.leads("a", 2)
        assert bool(promises.check([stored(0)], TWO_EPOCHS, SIZE_BYTES)) is is_wrong


def test_what_all_had_stays() -> None:
    """After a check nothing may be given up any more."""
    promises = make()
    acknowledge(promises, 0, DURABILITY_MEMORY)
    assert promises.check([stored(0)], ONE_EPOCH, SIZE_BYTES) == []
    promises.leads("b", 2)
    assert promises.check([], [Epoch(2, 0)], 0) != []


def test_readers_that_go_back() -> None:
    """With a synchronous master no seen record is lost, and no process shows less. Other masters may."""
    for is_synchronous in (True, False):
        promises = make(is_synchronous=is_synchronous)
        promises.sends(batch_of(0))
        promises.sees("a reader", [stored(0)])
        promises.shows("a/1", 200)
        promises.shows("a/2", 100)
        promises.shows("a/1", 100)
        wrong = promises.check([], TWO_EPOCHS, 0)
        assert any("showed it up to 200 before" in what for what in wrong) is is_synchronous
        assert any("was seen at 0 and is not there" in what for what in wrong) is is_synchronous


def test_readers_that_differ() -> None:
    """Two readers that see two messages at the same place, or under the same queue offset, are reported at once."""
    promises = make()
    promises.sees("one", [stored(0)])
    promises.sees("other", [stored(1, place=0)])
    assert len(promises.wrong) == 2


def test_two_leaders() -> None:
    """In an epoch a single log leads, and the same log acknowledges."""
    promises = make()
    promises.leads("b", 1)
    assert len(promises.wrong) == 1
    promises = make()
    acknowledge(promises, 0, DURABILITY_REPLICATED, leader="b")
    assert len(promises.check([stored(0)], ONE_EPOCH, SIZE_BYTES)) == 1


def test_writers() -> None:
    """A batch that a writer heard to be REPLICATED is there; a batch of less may be missing."""
    for durability, is_wrong in ((DURABILITY_REPLICATED, True), (DURABILITY_LOCAL_DISK, False)):
        promises = make()
        batch = batch_of(0)
        promises.sends(batch)
        promises.written(batch, durability)
        assert bool(promises.check([], ONE_EPOCH, 0)) is is_wrong
