# SPDX-License-Identifier: Apache-2.0
"""MappedLogFile: a file of a log for readers without a CommitLog. It is mapped on first use and never written."""

from pathlib import Path

from libs.formats.store_layout import parse_file_name
from libs.machine.fs import Fs, MappedFile


class MappedLogFile:
    """A LogFile whose name is its base offset. `close` drops the mapping, and the next use maps the file again."""

    def __init__(self, fs: Fs, path: Path, size_bytes: int) -> None:
        self.path = path
        self.base_physical_offset = parse_file_name(path.name)
        self.size_bytes = size_bytes
        self._fs = fs
        self._mapped: MappedFile | None = None

    @property
    def end_physical_offset(self) -> int:
        """Physical offset after its last byte."""
        return self.base_physical_offset + self.size_bytes

    @property
    def buffer(self) -> memoryview:
        """See `LogFile.buffer`."""
        return self._map().buffer

    def check_readable(self, position: int, end: int) -> None:
        """See `LogFile.check_readable`. Raises OSError."""
        self._map().check_readable(position, end - position)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `LogFile.data_ranges`."""
        return self._map().data_ranges(position)

    def close(self) -> None:
        """Drop the mapping."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None

    def _map(self) -> MappedFile:
        if self._mapped is None:
            self._mapped = self._fs.open_mapped(self.path, writable=False)
        return self._mapped
