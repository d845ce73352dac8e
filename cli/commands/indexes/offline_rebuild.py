# SPDX-License-Identifier: Apache-2.0
"""The offline part of `reput index rebuild`: settings, locks, and errors as a line and an exit code.

It holds the locks of both services, so that neither starts meanwhile. A kill in the middle leaves a part that the next
rebuild, or the next start of the Indexer, completes.
Imported only when it runs, because the engine takes a while to load.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import structs

from cli.exit_codes import CommandFailed, ExitCode
from libs.formats import store_layout
from libs.formats.errors import FormatError, NewerVersion
from libs.formats.limits import SEGMENT_SIZE_BYTES
from libs.log.errors import ConfigFileDamaged
from libs.log.state import directories as log_directories
from libs.machine.clock import SystemClock
from libs.machine.errors import StoreLocked
from libs.machine.fs import Fs
from libs.machine.posix_fs import PosixFs
from libs.requests.errors import RecordDamaged
from libs.runtime.config import load
from libs.segments.errors import SegmentMissing, SegmentSizeWrong, SegmentTwice, StoreError
from services.indexer.bootstrap import Settings, fitted
from services.indexer.engine.offline_rebuild import RebuildProgress, rebuild
from services.indexer.errors import Inapplicable

DAMAGES = (
    *(RecordDamaged, Inapplicable, SegmentMissing, SegmentSizeWrong, SegmentTwice),
    *(ConfigFileDamaged, FormatError, NewerVersion),
)
"""Errors of faulty files in the store, with which the indexes can't be built."""


def rebuild_offline(data_dir: Path, config: Path | None, advance: Callable[[int, int, int], None]) -> dict[str, object]:
    """Rebuild the indexes of a directory. Returns the fields to print. Raises CommandFailed and ConfigError.

    `advance` is called with bytes done, bytes in all, and records done.
    """
    flags = {"data_dir": str(data_dir)}
    settings = load(Settings, section="indexer", file=config, environment=os.environ, flags=flags).value
    fs = PosixFs()

    def show(state: RebuildProgress) -> None:
        start = state.start_physical_offset
        advance(state.indexed_physical_offset - start, state.target_physical_offset - start, state.record_count)

    with _explained(data_dir), contextlib.ExitStack() as locks:
        segment_size_bytes = _segment_size_bytes(fs, data_dir)
        locks.callback(fs.lock(data_dir / store_layout.LOCK).release)
        report = asyncio.run(
            rebuild(
                fs,
                fitted(settings.engine),
                log_data_dir=data_dir,
                segment_size_bytes=segment_size_bytes,
                clock=SystemClock(),
                on_progress=show,
            )
        )
    rate = round(report.record_count * 1000 / max(1, report.duration_ms))
    return {**structs.asdict(report), "log_end": report.log_end.value, "records_per_s": rate}


def _segment_size_bytes(fs: Fs, data_dir: Path) -> int:
    """Return the size of the log's first file, which all must have."""
    paths = log_directories.segment_paths(fs, log_directories.load(fs, data_dir))
    return (fs.size(paths[0]) if paths else 0) or SEGMENT_SIZE_BYTES


@contextlib.contextmanager
def _explained(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except StoreLocked as error:
        text = f"{error}; stop the services of {data_dir} first, or leave out --data-dir to let the Indexer do it"
        raise CommandFailed("STORE_LOCKED", text, code=ExitCode.REFUSED) from error
    except DAMAGES as error:
        raise CommandFailed("DAMAGED", str(error), code=ExitCode.DAMAGED) from error
    except StoreError as error:
        raise CommandFailed("NOT_REBUILT", str(error)) from error
