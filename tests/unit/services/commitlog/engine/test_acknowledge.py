# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements: an answer names a durability only if the log's mark of that durability has reached the batch."""

import asyncio

import pytest

from libs.log.watermark import Watermark
from services.commitlog.engine.durable.acknowledge import Acknowledgements
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.marks import Marks
from services.commitlog.errors import LeaseOver, StoreSealed
from tests.support.commitlog import make_config

STORE, MEMORY, DISK, REPLICATED = range(4)


def batch(end: int, durability: int) -> AppendedBatch:
    """A batch that ends here."""
    return AppendedBatch(0, end, 0, durability, 1, b"", b"", b"")


def marks(wrote: int, flushed: int) -> Marks:
    """The marks of a log without a pool."""
    end = Watermark(wrote)
    return Marks(end, end, Watermark(flushed), Watermark(flushed), end, is_synced_at_once=False)


@pytest.mark.parametrize(
    ("flush_mode", "asked", "waits", "reached"),
    [
        ("async", STORE, False, MEMORY),
        ("async", MEMORY, False, MEMORY),
        ("async", DISK, True, DISK),
        ("sync", STORE, True, DISK),
        ("sync", MEMORY, False, MEMORY),
    ],
)
async def test_each_durability_waits_for_its_mark(flush_mode: str, asked: int, *, waits: bool, reached: int) -> None:
    """The store's own durability is the disk with synchronous flushing. A batch that waits asks for a sync."""
    log = marks(wrote=100, flushed=50)
    acknowledgement = Acknowledgements(log, make_config(flush_mode=flush_mode)).of(batch(100, asked))
    assert (acknowledgement.is_settled, log.flushed.is_wanted) == (not waits, waits)
    log.flushed.advance(100)
    await acknowledgement.settle()
    assert acknowledgement.durability() == reached


@pytest.mark.parametrize("asked", [MEMORY, DISK])
@pytest.mark.parametrize("flushed", [50, 100])
async def test_a_lease_that_is_over(asked: int, flushed: int) -> None:
    """The lease is checked when a batch arrives and again when its answer leaves; a replicated batch needs no lease."""
    log, is_over = marks(wrote=100, flushed=flushed), False

    def check() -> None:
        if is_over:
            raise LeaseOver

    made = Acknowledgements(log, make_config(), lambda: True, check)
    acknowledgement, replicated = made.of(batch(100, asked)), made.of(batch(100, REPLICATED))
    is_over = True
    log.flushed.advance(100)
    log.replicated.advance(100)
    await acknowledgement.settle()
    with pytest.raises(LeaseOver):
        acknowledgement.durability()
    with pytest.raises(LeaseOver):
        made.of(batch(100, asked))
    assert replicated.durability() == REPLICATED


@pytest.mark.parametrize("is_shared", [True, False])
async def test_replicated_is_on_other_disks(*, is_shared: bool) -> None:
    """REPLICATED waits for the leader's own disk, too. If the in-sync set has no other member, the answer is DISK."""
    log = marks(wrote=100, flushed=50)
    made = Acknowledgements(log, make_config(), lambda: is_shared)
    acknowledgement = made.of(batch(100, REPLICATED))
    assert (log.flushed.wanted, log.replicated.wanted, acknowledgement.is_settled) == (100, 100, False)
    log.flushed.advance(100)
    assert not acknowledgement.is_settled
    log.replicated.advance(100)
    await acknowledgement.settle()
    expected = REPLICATED if is_shared else DISK
    assert (acknowledgement.durability(), made.of(batch(100, REPLICATED)).durability()) == (expected, expected)


async def test_late_replicas_lower_the_durability() -> None:
    """When the time-out ends, the durability is the durability that the leader's own disk has by then."""
    log = marks(wrote=100, flushed=50)
    acknowledgement = Acknowledgements(log, make_config(replicate_timeout_ms=1), lambda: True).of(
        batch(100, REPLICATED)
    )
    await acknowledgement.settle()
    assert (acknowledgement.durability(), acknowledgement.is_late) == (MEMORY, True)
    log.flushed.advance(100)
    assert (acknowledgement.durability(), acknowledgement.is_late) == (DISK, True)
    log.replicated.advance(100)
    assert (acknowledgement.durability(), acknowledgement.is_late) == (REPLICATED, False)


async def test_a_synchronous_master_that_is_alone_is_not_late() -> None:
    """If the setting allows an in-sync set of the leader alone, its disk is all that is promised."""
    end, replicated = Watermark(100), Watermark(100)
    log = Marks(end, end, replicated, replicated, replicated, is_synced_at_once=True)
    acknowledgement = Acknowledgements(log, make_config(role="sync_master"), lambda: False).of(batch(100, STORE))
    assert (acknowledgement.durability(), acknowledgement.is_late) == (DISK, False)


async def test_what_is_there_is_not_waited_for() -> None:
    """A batch that is sent again and is on the disk already does not wait."""
    acknowledgement = Acknowledgements(marks(100, 50), make_config()).of(batch(50, DISK))
    assert acknowledgement.is_settled
    assert acknowledgement.durability() == DISK


async def test_a_late_mark_lowers_the_durability() -> None:
    """The answer has the durability that is known at the deadline. A later advance of the mark calls `when_reached`."""
    log, heard = marks(100, 50), []
    acknowledgement = Acknowledgements(log, make_config(sync_timeout_ms=1)).of(batch(100, DISK))
    acknowledgement.when_reached(lambda: heard.append("reached"))
    await acknowledgement.settle()
    assert (acknowledgement.is_settled, acknowledgement.durability(), heard) == (True, MEMORY, [])
    log.flushed.advance(100)
    await asyncio.sleep(0)
    assert heard == ["reached"]


async def test_a_mark_that_failed_is_told() -> None:
    """Waiting and later callers get the failure, and never a durability."""
    log = marks(100, 50)
    acknowledgements = Acknowledgements(log, make_config())
    early = acknowledgements.of(batch(100, DISK))
    log.flushed.fail(StoreSealed)
    for acknowledgement in (early, acknowledgements.of(batch(100, DISK))):
        await acknowledgement.settle()
        with pytest.raises(StoreSealed):
            acknowledgement.durability()


async def test_a_mark_that_failed_where_another_one_will_lead() -> None:
    """A failed mark of an elected log raises LeaseOver, because the next leader decides whether the batch stays."""
    log = marks(100, 50)
    acknowledgements = Acknowledgements(log, make_config(), check=lambda: None)
    early = acknowledgements.of(batch(100, DISK))
    log.flushed.fail(StoreSealed)
    for acknowledgement in (early, acknowledgements.of(batch(100, DISK))):
        await acknowledgement.settle()
        with pytest.raises(LeaseOver):
            acknowledgement.durability()
