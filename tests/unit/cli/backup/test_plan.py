# SPDX-License-Identifier: Apache-2.0
"""Plans: what a backup takes over, what a prune deletes, what a restore needs."""

import random
from itertools import pairwise

import msgspec
import pytest

from cli.backup.errors import BackupError
from cli.backup.manifest import EpochStart, Manifest, Piece, digest_of
from cli.backup.plan import (
    DAY_MS,
    Extent,
    created_after,
    is_continued,
    new_backup_id,
    pieces_until,
    plan_backup,
    plan_prune,
    restored_epochs,
)
from libs.formats.epoch import Epoch

HISTORY, OTHER = "a" * 32, "b" * 32


def made(*bounds: int, created_ms: int = 1, epochs: tuple[EpochStart, ...] = (EpochStart(1, 0),)) -> Manifest:
    """A manifest with a piece between each two bounds, in segments of 100 bytes."""
    pieces = tuple(Piece(start, end - start, digest_of(b"%d-%d" % (start, end))) for start, end in pairwise(bounds))
    return Manifest(
        backup_id=new_backup_id(created_ms, bounds[-1], ()),
        created_ms=created_ms,
        history_id=HISTORY,
        segment_size_bytes=100,
        min_physical_offset=bounds[0],
        end_physical_offset=bounds[-1],
        epochs=epochs,
        pieces=pieces,
    )


def extent(start: int, end: int, *, history: str = HISTORY, epochs: tuple[EpochStart, ...] = ()) -> Extent:
    return Extent(start, end, 100, history, epochs or (EpochStart(1, 0),))


def test_the_first_backup_reads_everything() -> None:
    """Without an earlier backup the whole log is read."""
    assert plan_backup(extent(100, 250), []) == ((), 100, 250)


def test_the_next_backup_reads_what_is_new() -> None:
    """The next backup reads from the end of the best earlier backup on."""
    plan = plan_backup(extent(0, 250), [made(0, 100), made(0, 100, 180)])
    assert (len(plan.kept), plan.start_physical_offset, plan.end_physical_offset) == (2, 180, 250)


def test_expired_segments_are_left_out() -> None:
    """Pieces of segments that the log has deleted are not taken over."""
    plan = plan_backup(extent(100, 250), [made(0, 100, 180)])
    assert [piece.start_physical_offset for piece in plan.kept] == [100]


def test_nothing_is_taken_over_from_another_log() -> None:
    """Another history, size of segments or beginning makes a full backup."""
    assert plan_backup(extent(0, 250, history=OTHER), [made(0, 100)]).kept == ()
    unknown = msgspec.structs.replace(made(0, 100), history_id="")
    assert plan_backup(extent(0, 250, history=""), [unknown]).kept == ()
    sized = msgspec.structs.replace(made(0, 100), segment_size_bytes=200)
    assert plan_backup(extent(0, 250), [sized]).kept == ()
    assert plan_backup(extent(0, 250), [made(100, 200)]).kept == ()


def test_a_lost_tail_is_read_again() -> None:
    """A new epoch below the end of a backup: pieces behind its begin are not taken over."""
    after = (EpochStart(1, 0), EpochStart(2, 150))
    plan = plan_backup(extent(0, 400, epochs=after), [made(0, 100, 140, 190)])
    assert plan.start_physical_offset == 140


def test_the_log_must_go_on_while_it_is_read() -> None:
    """A backup is refused if the log has lost its end meanwhile."""
    begun = extent(0, 200)
    assert is_continued(begun, extent(100, 300))
    assert is_continued(begun, extent(0, 300, epochs=(EpochStart(1, 0), EpochStart(2, 200))))
    assert not is_continued(begun, extent(0, 300, epochs=(EpochStart(1, 0), EpochStart(2, 199))))
    assert not is_continued(begun, extent(0, 300, history=OTHER))
    assert not is_continued(begun, extent(0, 150))


def test_a_prune_keeps_what_a_kept_backup_names() -> None:
    """Over random backups: no object of a kept backup or of an unfinished one goes, and every other one does."""
    chance = random.Random(5)
    for _ in range(200):
        backups = [
            made(0, *sorted({chance.randrange(1, 90) for _ in range(3)}), created_ms=number * DAY_MS)
            for number in range(chance.randrange(1, 8))
        ]
        unfinished = {"now": made(0, 95, created_ms=10 * DAY_MS), "old": made(0, 96, created_ms=-1)}
        there = {digest for one in (*backups, *unfinished.values()) for digest in one.objects} | {"orphan"}
        keep, days = chance.choice([(1, None), (3, None), (None, 2.0), (2, 4.0), (100, None)])
        plan = plan_prune(backups, unfinished, there, now_ms=8 * DAY_MS, keep_count=keep, keep_days=days)
        kept = {one.backup_id: one for one in backups if one.backup_id in plan.kept}
        named = {digest for one in (*kept.values(), unfinished["now"]) for digest in one.objects}
        assert set(plan.objects) == there - named
        assert backups[-1].backup_id in kept
        assert {*plan.kept, *plan.deleted} == {one.backup_id for one in backups}
        assert plan.incomplete == ("old",)
        assert len(kept) >= min(keep or 1, len(backups))


def test_a_prune_needs_a_rule() -> None:
    """A prune without a rule deletes nothing."""
    with pytest.raises(BackupError, match="--keep"):
        plan_prune([], {}, [], now_ms=0, keep_count=None, keep_days=None)


def test_a_restore_reads_only_what_it_needs() -> None:
    """An offset outside of the backup is refused; pieces behind the offset are not read."""
    backup = made(100, 200, 250)
    assert pieces_until(backup, None) == backup.pieces
    assert len(pieces_until(backup, 200)) == 1
    assert pieces_until(backup, 100) == ()
    for outside in (99, 251):
        with pytest.raises(BackupError, match="100 to 250"):
            pieces_until(backup, outside)


def test_a_restored_log_has_an_epoch_of_its_own() -> None:
    """The epoch of a restore is newer than all epochs of the backup."""
    backup = made(0, 90, epochs=(EpochStart(1, 0), EpochStart(4, 50), EpochStart(5, 80)))
    assert restored_epochs(backup, 60) == [Epoch(1, 0), Epoch(4, 50), Epoch(6, 60)]
    assert restored_epochs(backup, 90)[-1] == Epoch(6, 90)
    assert restored_epochs(backup, 60, is_follower=True) == [Epoch(1, 0), Epoch(4, 50)]


def test_ids_are_not_taken_twice() -> None:
    """A second backup of the same second has an id of its own."""
    first = new_backup_id(0, 7, ())
    assert first == "19700101T000000Z-7"
    assert new_backup_id(0, 7, [first]) == f"{first}-1"


def test_the_last_backup_is_the_newest_whatever_the_clock() -> None:
    """A backup is newer than those before it, by time and by id, also if the clock was ahead or was set back."""
    assert created_after((), 7) == 7
    chance, backups = random.Random(3), []
    for number in range(200):
        now_ms = chance.choice([0, 1_000, 5 * DAY_MS, chance.randrange(DAY_MS)])
        backups.append(made(0, 8 + number, created_ms=created_after(backups, now_ms)))
        assert backups[-1].created_ms >= now_ms
    assert [one.backup_id for one in backups] == sorted(one.backup_id for one in backups)
    plan = plan_prune(backups, {}, (), now_ms=0, keep_count=1, keep_days=None)
    assert plan.kept == (backups[-1].backup_id,)
