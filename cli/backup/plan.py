# SPDX-License-Identifier: Apache-2.0
"""Plans of a backup, of a prune and of a restore: manifests in, decisions out. Pure.

Rules: a backup takes over the pieces of an earlier backup as far as both logs have the same history; a prune deletes no
object that a kept manifest names, and never the newest backup.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from cli.backup.errors import BackupError
from cli.backup.manifest import EpochStart, Manifest, Piece
from libs.formats.epoch import Epoch
from libs.log.common_history import common_end

DAY_MS = 86_400_000


class Extent(NamedTuple):
    """The part of the running log that a backup covers."""

    min_physical_offset: int
    end_physical_offset: int
    segment_size_bytes: int
    history_id: str
    epochs: tuple[EpochStart, ...]


class BackupPlan(NamedTuple):
    """The pieces that are there already, and the range that must be read from the store."""

    kept: tuple[Piece, ...]
    start_physical_offset: int
    end_physical_offset: int


class PrunePlan(NamedTuple):
    """The manifests and objects to delete. Manifests go first."""

    deleted: tuple[str, ...]
    incomplete: tuple[str, ...]
    objects: tuple[str, ...]
    kept: tuple[str, ...]


def new_backup_id(created_ms: int, end_physical_offset: int, taken: Iterable[str]) -> str:
    """Return an id that sorts by time and is not taken."""
    name = f"{datetime.fromtimestamp(created_ms // 1000, UTC):%Y%m%dT%H%M%SZ}-{end_physical_offset}"
    names = set(taken)
    candidates = itertools.chain([name], (f"{name}-{number}" for number in range(1, 10_000)))
    return next(found for found in candidates if found not in names)


def created_after(earlier: Iterable[Manifest], now_ms: int) -> int:
    """Return the time of a new backup: that of the clock, but in a later second than all backups of the place.

    So the backup that was made last is the newest one, also after a clock that was ahead or was set back.
    """
    newest_ms = max((one.created_ms for one in earlier), default=-1)
    return max(now_ms, (newest_ms // 1000 + 1) * 1000)


def plan_backup(extent: Extent, earlier: Iterable[Manifest]) -> BackupPlan:
    """Plan the backup of an extent over the earlier manifest that saves most. A manifest may be of a killed backup."""
    empty = BackupPlan((), extent.min_physical_offset, extent.end_physical_offset)
    plans = (_over(extent, manifest) for manifest in earlier)
    return max(plans, key=lambda plan: plan.start_physical_offset, default=empty)


def _over(extent: Extent, manifest: Manifest) -> BackupPlan:
    """Plan the backup over a manifest. Nothing is taken over from another history."""
    first = extent.min_physical_offset
    nothing = BackupPlan((), first, extent.end_physical_offset)
    is_same = manifest.history_id == extent.history_id and extent.history_id != ""
    if not is_same or manifest.segment_size_bytes != extent.segment_size_bytes:
        return nothing
    common = common_end(
        _epochs(extent.epochs), extent.end_physical_offset, _epochs(manifest.epochs), manifest.end_physical_offset
    )
    kept = [p for p in manifest.pieces if p.start_physical_offset >= first and p.end_physical_offset <= common]
    if not kept or kept[0].start_physical_offset != first:
        return nothing
    return BackupPlan(tuple(kept), kept[-1].end_physical_offset, extent.end_physical_offset)


def is_continued(extent: Extent, later: Extent) -> bool:
    """Return whether a later look at the log shows the same bytes up to the end of an extent."""
    if later.history_id != extent.history_id:
        return False
    end = extent.end_physical_offset
    common = common_end(_epochs(later.epochs), later.end_physical_offset, _epochs(extent.epochs), end)
    return common >= end


def _epochs(starts: Sequence[EpochStart]) -> list[Epoch]:
    return [Epoch(start.number, start.start_physical_offset) for start in starts]


def plan_prune(
    manifests: Sequence[Manifest],
    incomplete: Mapping[str, Manifest],
    objects: Iterable[str],
    *,
    now_ms: int,
    keep_count: int | None,
    keep_days: float | None,
) -> PrunePlan:
    """Plan a prune. Both rules together keep each backup that either rule keeps, and the newest backup always stays.

    The list of an unfinished backup is kept until a later backup is complete. Raises BackupError without any rule.
    """
    if keep_count is None and keep_days is None:
        raise BackupError("nothing says which backups to keep: give --keep N, --keep-days N, or both")
    newest_first = sorted(manifests, key=lambda one: (one.created_ms, one.backup_id), reverse=True)
    since_ms = now_ms - (keep_days or 0) * DAY_MS
    kept = [
        one
        for number, one in enumerate(newest_first)
        if number == 0
        or (keep_count is not None and number < keep_count)
        or (keep_days is not None and one.created_ms >= since_ms)
    ]
    newest_ms = newest_first[0].created_ms if newest_first else -1
    stale = [name for name, one in incomplete.items() if one.created_ms < newest_ms]
    named = {digest for one in kept for digest in one.objects}
    named |= {digest for name, one in incomplete.items() if name not in stale for digest in one.objects}
    kept_ids = {one.backup_id for one in kept}
    return PrunePlan(
        deleted=tuple(one.backup_id for one in reversed(newest_first) if one.backup_id not in kept_ids),
        incomplete=tuple(stale),
        objects=tuple(sorted(set(objects) - named)),
        kept=tuple(one.backup_id for one in kept),
    )


def pieces_until(manifest: Manifest, end_physical_offset: int | None) -> tuple[Piece, ...]:
    """Return the pieces that a restore up to an offset needs. Raises BackupError for an offset outside of it."""
    first, last = manifest.min_physical_offset, manifest.end_physical_offset
    if end_physical_offset is None:
        return manifest.pieces
    if not first <= end_physical_offset <= last:
        raise BackupError(f"offset {end_physical_offset} is outside of backup {manifest.backup_id}: {first} to {last}")
    return tuple(piece for piece in manifest.pieces if piece.start_physical_offset < end_physical_offset)


def restored_epochs(manifest: Manifest, end_physical_offset: int, *, is_follower: bool = False) -> list[Epoch]:
    """Return the epochs of a restored log: the backup's epochs up to the cut, and unless it follows one of its own."""
    kept = [epoch for epoch in _epochs(manifest.epochs) if epoch.start_physical_offset <= end_physical_offset]
    if is_follower:
        return kept
    newest = max((epoch.number for epoch in manifest.epochs), default=0)
    return [*kept, Epoch(newest + 1, end_physical_offset)]
