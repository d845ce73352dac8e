# SPDX-License-Identifier: Apache-2.0
"""SegmentChain: naming, opening, rolling, finding, truncating, dropping; crashes, failed syncs and full disks."""

from pathlib import Path

import pytest

from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from libs.segments.chain import SegmentChain
from libs.segments.errors import (
    OffsetBeyondEnd,
    OffsetTrimmed,
    SegmentMissing,
    SegmentSizeWrong,
    StoreError,
    StoreFull,
    SyncFailed,
)
from libs.segments.map_budget import MapBudget
from tests.support.chains import drop_first

HOME = Path("/store/commitlog")
SIZE = 8192


def names(*bases: int) -> list[str]:
    return [f"{base:020d}" for base in bases]


def chain_of(fs: MemoryFs, *contents: bytes, **options: bool) -> SegmentChain:
    """A chain whose segments begin with these bytes; all but the last are full."""
    chain = SegmentChain(fs, HOME, SIZE, **options).open()
    for number, content in enumerate(contents):
        segment = chain.roll()
        segment.buffer[: len(content)] = content
        segment.advance(len(content) if number == len(contents) - 1 else SIZE)
    return chain


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


def test_an_empty_chain_has_nothing(fs: MemoryFs) -> None:
    """Opening makes the directory; every offset is zero and nothing can be found."""
    chain = SegmentChain(fs, HOME, SIZE).open()
    assert fs.list(HOME) == []
    assert chain.active is None
    assert (chain.min_physical_offset, chain.max_physical_offset, chain.flushed_physical_offset) == (0, 0, 0)
    assert chain.sync() == 0
    with pytest.raises(OffsetBeyondEnd):
        chain.find(0)


def test_files_are_named_by_their_first_byte(fs: MemoryFs) -> None:
    """RocketMQ's names: 20 digits, apart by a segment's size."""
    chain = chain_of(fs, b"a", b"b", b"c")
    assert fs.list(HOME) == names(0, SIZE, 2 * SIZE)
    assert [segment.base_physical_offset for segment in chain.segments] == [0, SIZE, 2 * SIZE]
    assert chain.active is chain.segments[-1]
    assert (chain.min_physical_offset, chain.max_physical_offset) == (0, 2 * SIZE + 1)


def test_a_chain_may_begin_later(fs: MemoryFs) -> None:
    """An empty chain begins at a given offset, as for a queue whose head is removed."""
    chain = SegmentChain(fs, HOME, SIZE).open()
    chain.roll(first_base_physical_offset=5 * SIZE)
    assert fs.list(HOME) == names(5 * SIZE)
    assert (chain.min_physical_offset, chain.max_physical_offset) == (5 * SIZE, 5 * SIZE)
    assert chain.flushed_physical_offset == 5 * SIZE


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (SIZE - 1, OffsetTrimmed),
        (SIZE, 0),
        (2 * SIZE - 1, 0),
        (2 * SIZE, 1),
        (2 * SIZE + 2, 1),
        (2 * SIZE + 3, OffsetBeyondEnd),
        (-1, OffsetTrimmed),
        (10**18, OffsetBeyondEnd),
    ],
)
def test_find_knows_every_offset(fs: MemoryFs, offset: int, found: int | type[StoreError]) -> None:
    """Each written byte has its segment; below and above there are errors with the bound."""
    chain = chain_of(fs, b"a", b"b", b"end")
    drop_first(fs, chain)
    if isinstance(found, int):
        assert chain.find(offset) is chain.segments[found]
        return
    with pytest.raises(found) as caught:
        chain.find(offset)
    assert caught.value.value == offset  # type: ignore[attr-defined]
    bound = caught.value.min if isinstance(caught.value, OffsetTrimmed) else caught.value.max  # type: ignore[attr-defined]
    assert bound == (SIZE if found is OffsetTrimmed else 2 * SIZE + 3)


def test_reopening_finds_all_files_full(fs: MemoryFs) -> None:
    """After a restart every file counts as written; recovery then finds the end of the data."""
    chain_of(fs, b"a", b"b").close()
    chain = SegmentChain(fs, HOME, SIZE).open()
    assert [segment.wrote_position for segment in chain.segments] == [SIZE, SIZE]
    assert [segment.is_mapped for segment in chain.segments] == [False, False]
    chain.truncate_after(SIZE + 1)
    assert (chain.max_physical_offset, bytes(chain.find(SIZE).buffer[:2])) == (SIZE + 1, b"b\0")


@pytest.mark.parametrize(("is_clean", "flushed"), [(True, 2 * SIZE), (False, 0)])
def test_only_a_clean_stop_proves_that_bytes_are_on_disk(fs: MemoryFs, is_clean: bool, flushed: int) -> None:
    """After a kill the bytes may be in the page cache alone, so the first sync covers them."""
    chain_of(fs, b"a", b"b").close()
    fs.crash(everything_survives)
    chain = SegmentChain(fs, HOME, SIZE).open(is_clean=is_clean)
    assert chain.flushed_physical_offset == flushed
    synced: list[int] = []
    with armed("segment.after_sync", lambda: synced.append(1)):
        assert chain.sync() == 2 * SIZE
    assert len(synced) == (0 if is_clean else 2)


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        ({names(0)[0]: SIZE, names(SIZE)[0]: SIZE - 1}, SegmentSizeWrong, ["8191 bytes", "8192 bytes", names(SIZE)[0]]),
        ({names(0)[0]: 2 * SIZE}, SegmentSizeWrong, ["16384 bytes"]),
        ({names(0)[0]: 0, names(SIZE)[0]: SIZE}, SegmentSizeWrong, ["0 bytes"]),
        ({names(0)[0]: SIZE, names(2 * SIZE)[0]: SIZE}, SegmentMissing, [names(0)[0], names(2 * SIZE)[0]]),
        ({names(0)[0]: SIZE, names(SIZE + 1)[0]: SIZE}, SegmentMissing, [names(SIZE + 1)[0]]),
    ],
)
def test_a_directory_that_is_no_chain_is_refused(
    fs: MemoryFs, files: dict[str, int], error: type[StoreError], words: list[str]
) -> None:
    """Wrong sizes and holes are named in a single line; nothing is repaired by guessing."""
    fs.make_directory(HOME)
    for name, size in files.items():
        fs.write_atomic(HOME / name, bytes(size))
    with pytest.raises(error) as caught:
        SegmentChain(fs, HOME, SIZE).open()
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
    assert fs.list(HOME) == sorted(files)


def test_strangers_in_the_directory_are_left_alone(fs: MemoryFs) -> None:
    """Other names are ignored; an empty last file, which RocketMQ may leave, and our own leftovers are removed."""
    chain_of(fs, b"a").close()
    strangers = ["1.tmp", "lost+found", "٠" * 20, "0" * 19]
    fs.make_directory(HOME / "lost+found")
    for name in (*strangers[:1], *strangers[2:], names(SIZE)[0]):
        fs.write_atomic(HOME / name, b"")
    fs.write_atomic(HOME / f"{names(2 * SIZE)[0]}.tmp", bytes(10))
    chain = SegmentChain(fs, HOME, SIZE).open()
    assert len(chain.segments) == 1
    assert fs.list(HOME) == sorted([*strangers, names(0)[0]])


@pytest.mark.parametrize(
    ("offset", "kept", "end"),
    [
        (3 * SIZE, [0, SIZE, 2 * SIZE], 3 * SIZE),
        (2 * SIZE + 5, [0, SIZE, 2 * SIZE], 2 * SIZE + 5),
        (2 * SIZE, [0, SIZE], 2 * SIZE),
        (SIZE + 1, [0, SIZE], SIZE + 1),
        (1, [0], 1),
        (0, [0], 0),
    ],
)
def test_truncation_is_exact_and_durable(fs: MemoryFs, offset: int, kept: list[int], end: int) -> None:
    """Bytes from the offset on are removed for good, also after a power cut; bytes below are untouched."""
    chain = chain_of(fs, b"x" * SIZE, b"y" * SIZE, b"z" * SIZE)
    chain.sync()
    chain.truncate_after(offset)
    assert fs.list(HOME) == names(*kept)
    assert (chain.max_physical_offset, chain.flushed_physical_offset) == (end, end)
    fs.crash()
    content = b"".join(fs.read(HOME / name) for name in fs.list(HOME))
    assert content == (b"x" * SIZE + b"y" * SIZE + b"z" * SIZE)[:offset].ljust(len(content), b"\0")


@pytest.mark.parametrize(("offset", "error"), [(SIZE - 1, OffsetTrimmed), (2 * SIZE + 2, OffsetBeyondEnd)])
def test_truncation_outside_of_the_chain_is_refused(fs: MemoryFs, offset: int, error: type[StoreError]) -> None:
    """A truncation is allowed at the end of the chain, and refused behind it and in removed segments."""
    chain = chain_of(fs, b"a", b"b", b"c")
    drop_first(fs, chain)
    with pytest.raises(error):
        chain.truncate_after(offset)
    chain.truncate_after(2 * SIZE + 1)


def test_truncation_without_clearing_reads_nothing(fs: MemoryFs) -> None:
    """After a clean stop the rest is known to be zeros: only the cursors move, and the file is not even mapped."""
    chain_of(fs, b"ab").close()
    chain = SegmentChain(fs, HOME, SIZE).open(is_clean=True)
    chain.truncate_after(2, clear_rest=False)
    assert (chain.max_physical_offset, chain.flushed_physical_offset) == (2, 2)
    assert chain.maps.mapped_count == 0


class StopsAtSync(MemoryFs):
    """Fails at the n-th sync of a directory once it is armed."""

    syncs_left = 1_000

    def sync_directory(self, path: Path) -> None:
        if self.syncs_left == 0:
            raise FailpointRaised("sync_directory")
        self.syncs_left -= 1
        super().sync_directory(path)


@pytest.mark.parametrize("removed_count", [0, 1, 2, 3])
def test_a_crash_in_a_truncation_leaves_no_hole(removed_count: int) -> None:
    """Segments are removed newest first, so that a crash always leaves a chain."""
    fs = StopsAtSync()
    chain = chain_of(fs, b"a", b"b", b"c", b"d")
    fs.syncs_left = removed_count
    if removed_count < 3:
        with pytest.raises(FailpointRaised):
            chain.truncate_after(1)
    else:
        chain.truncate_after(1)
    fs.crash()
    fs.syncs_left = 1_000
    assert len(SegmentChain(fs, HOME, SIZE).open().segments) == 4 - removed_count


def test_the_oldest_is_removed_for_good(fs: MemoryFs) -> None:
    """A removed file stays removed after a power cut, and a reader at work keeps its bytes.

    The active segment is not removed.
    """
    chain = chain_of(fs, b"old", b"new")
    first = chain.segments[0]
    assert first.hold()
    dropped = drop_first(fs, chain)
    assert dropped is first
    assert bytes(first.buffer[:3]) == b"old"
    first.release()
    assert not first.hold()
    fs.crash()
    assert fs.list(HOME) == names(SIZE)
    with pytest.raises(AssertionError):
        drop_first(fs, chain)


def test_a_detached_segment_is_out_of_the_chain_at_once(fs: MemoryFs) -> None:
    """The chain does not find a detached segment any more; until its file is deleted a crash brings it back."""
    chain = chain_of(fs, b"old", b"new")
    first = chain.detach_first()
    assert (chain.min_physical_offset, first.hold_count) == (SIZE, 0)
    with pytest.raises(OffsetTrimmed):
        chain.find(0)
    fs.crash()
    assert fs.list(HOME) == names(0, SIZE)


def test_destroy_empties_the_chain(fs: MemoryFs) -> None:
    """All files are removed, and the chain may begin again at another offset."""
    chain = chain_of(fs, b"a", b"b")
    chain.destroy()
    fs.crash()
    assert fs.list(HOME) == []
    chain.roll(first_base_physical_offset=7 * SIZE)
    assert fs.list(HOME) == names(7 * SIZE)


@pytest.mark.parametrize("removed_count", range(4))
@pytest.mark.parametrize("survivor", range(4))
def test_a_crash_while_it_is_destroyed_leaves_no_hole(
    fs: MemoryFs, monkeypatch: pytest.MonkeyPatch, removed_count: int, survivor: int
) -> None:
    """With any removal on the disk the rest opens again."""
    chain = chain_of(fs, b"a", b"b", b"c", b"d")
    remove, paths = fs.remove, [HOME / name for name in names(0, SIZE, 2 * SIZE, 3 * SIZE)]

    def remove_some(path: Path) -> None:
        if len(fs.list(HOME)) == len(paths) - removed_count:
            raise OSError("killed")
        remove(path)

    monkeypatch.setattr(fs, "remove", remove_some)
    with pytest.raises(OSError, match="killed"):
        chain.destroy()
    fs.crash(lambda path, _: path == paths[survivor])
    assert len(SegmentChain(fs, HOME, SIZE).open().segments) == 4 - removed_count


def test_sync_goes_from_old_to_new(fs: MemoryFs) -> None:
    """Flushed data never has a hole: a failure in the first segment leaves the second unsynced."""
    chain = chain_of(fs, b"a", b"b")
    synced: list[int] = []
    with armed("segment.before_sync", lambda: synced.append(chain.flushed_physical_offset)):
        assert chain.sync() == SIZE + 1
    assert synced == [0, SIZE]
    fs.crash()
    assert [fs.read(HOME / name)[:1] for name in names(0, SIZE)] == [b"a", b"b"]


def test_one_failed_sync_seals_the_chain(fs: MemoryFs) -> None:
    """After an error no sync counts any more, although the next fdatasync would succeed."""
    chain = chain_of(fs, b"a", b"b")
    with armed("file.sync", "raise"), pytest.raises(SyncFailed, match=r"Input/output|failpoint") as caught:
        chain.sync()
    assert caught.value.path == HOME / names(0)[0]
    assert caught.value.position == SIZE
    assert chain.flushed_physical_offset == 0
    with pytest.raises(SyncFailed):
        chain.sync()
    with pytest.raises(SyncFailed):
        chain.segments[1].sync()


@pytest.mark.parametrize("preallocates", [False, True])
def test_a_full_disk_changes_nothing(preallocates: bool) -> None:
    """StoreFull leaves the chain as it was; once there is room the same call succeeds."""
    fs = MemoryFs(capacity_bytes=SIZE + 100)
    chain = chain_of(fs, b"a", preallocates=preallocates)
    chain.segments[0].advance(SIZE)
    for _ in range(2):
        with pytest.raises(StoreFull, match="no room for the 8192 bytes") as caught:
            chain.roll()
        assert caught.value.needed_bytes == SIZE
    assert (len(chain.segments), chain.max_physical_offset) == (1, SIZE)
    fs.capacity_bytes = 10 * SIZE
    chain.roll()
    chain.close()


def test_one_segment_is_made_ahead(fs: MemoryFs) -> None:
    """A log's next file is there before it is needed; truncation and a clean stop remove it, a crash leaves zeros."""
    chain = chain_of(fs, b"a", b"b", preallocates=True)
    chain.segments[1].advance(SIZE)
    assert chain.roll().path == HOME / names(2 * SIZE)[0]
    chain.truncate_after(2 * SIZE)
    assert fs.list(HOME) == names(0, SIZE)
    chain.roll()
    chain.close()
    assert fs.list(HOME) == names(0, SIZE, 2 * SIZE)


def test_a_file_made_ahead_survives_a_crash_as_zeros(fs: MemoryFs) -> None:
    """The next start finds it as a last segment without data, and truncation removes it."""
    chain = chain_of(fs, b"a", preallocates=True)
    chain.sync()
    ahead = HOME / names(SIZE)[0]
    while not fs.exists(ahead):
        pass
    fs.crash()
    again = SegmentChain(fs, HOME, SIZE).open()
    assert (len(again.segments), fs.read(ahead)) == (2, bytes(SIZE))
    again.truncate_after(1)
    assert fs.list(HOME) == names(0)


def test_the_next_segment_is_warm_and_locked_until_it_is_full(tmp_path: Path) -> None:
    """Its pages are in memory before the first write, also of a segment made on demand; a full segment is unlocked."""
    size_bytes = 64 << 10
    chain = SegmentChain(PosixFs(), tmp_path, size_bytes, preallocates=True, warms=True).open()
    first = chain.roll()
    warmed(chain)
    assert pages_kib(first.path) == pages_kib(tmp_path / f"{size_bytes:020d}") == (64, 64)
    first.advance(size_bytes)
    chain.roll()
    warmed(chain)
    assert pages_kib(first.path) == (64, 0)
    assert pages_kib(tmp_path / f"{2 * size_bytes:020d}") == (64, 64)
    chain.truncate_after(size_bytes)
    chain.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}"]


def warmed(chain: SegmentChain) -> None:
    """Wait until the allocator's thread has no work left."""
    assert chain.allocator is not None
    chain.allocator.wait()


def pages_kib(path: Path) -> tuple[int, int]:
    """The KiB of a mapped file that are in memory, and the KiB that are locked there."""
    found: dict[str, int] = {}
    is_it = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            is_it = rest[-1:] == [str(path)]
        elif is_it and name in ("Rss:", "Locked:"):
            found[name] = found.get(name, 0) + int(rest[0])
    return found.get("Rss:", 0), found.get("Locked:", 0)


def test_opening_maps_nothing_and_a_budget_bounds_what_is_mapped(fs: MemoryFs) -> None:
    """Thousands of queues cost no mapping until touched, and never more mappings than the budget."""
    budget = MapBudget(mapped_count_max=2)
    chains = []
    for number in range(5):
        chain = SegmentChain(fs, Path(f"/q/{number}"), SIZE, maps=budget).open()
        segment = chain.roll()
        segment.buffer[:1] = bytes([number])
        segment.advance(1)
        chain.sync()
        chains.append(chain)
    assert budget.mapped_count == 2
    assert [chain.segments[0].buffer[0] for chain in chains] == [0, 1, 2, 3, 4]
    assert budget.mapped_count == 2
