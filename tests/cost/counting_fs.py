# SPDX-License-Identifier: Apache-2.0
"""CountingFs: any Fs, with a list of its calls and its mapped files' calls, and the bytes of each call.

A read or write through a mapping is not a call; `touched_pages` counts these.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from libs.machine.fs import Fs, MappedFile

MAPPING_OPERATIONS = frozenset({"create_mapped", "open_mapped"})
WRITING_OPERATIONS = frozenset({"write_atomic", "append"})
OTHER_OPERATIONS = frozenset(
    {"read", "remove", "rename", "list", "exists", "is_directory", "size", "make_directory", "remove_directory"}
    | {"sync_directory", "disk_usage", "lock"}
)
FS_OPERATIONS = MAPPING_OPERATIONS | WRITING_OPERATIONS | OTHER_OPERATIONS
FILE_OPERATIONS = frozenset({"sync", "write", "reserve", "populate", "check_readable", "data_ranges"})


class FsCall(NamedTuple):
    """A call. `size_bytes` is the size that it read, wrote or mapped, 0 if it did none of these."""

    operation: str
    path: Path
    size_bytes: int


class CountingFile:
    """A mapped file whose calls are listed."""

    def __init__(self, mapped: MappedFile, calls: list[FsCall]) -> None:
        self._mapped = mapped
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        """An attribute of the file, or its method, listed."""
        found = getattr(self._mapped, name)
        if name not in FILE_OPERATIONS:
            return found

        def call(*arguments: Any) -> Any:
            self._calls.append(FsCall(name, self._mapped.path, _size_of_access(name, arguments)))
            return found(*arguments)

        return call


class CountingFs:
    """An `Fs` over another `Fs`. Attributes besides the methods of Fs are passed on."""

    def __init__(self, fs: Fs) -> None:
        self.calls: list[FsCall] = []
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        """An attribute of the file system, or its method, listed."""
        found = getattr(self._fs, name)
        return self._listed(name, found) if name in FS_OPERATIONS else found

    def _listed(self, operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Path, *arguments: Any, **options: Any) -> Any:
            answer = method(path, *arguments, **options)
            self.calls.append(FsCall(operation, path, _size_of_call(operation, arguments, answer)))
            return CountingFile(answer, self.calls) if operation in MAPPING_OPERATIONS else answer

        return call

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[FsCall]]:
        """List the calls of the block; complete at its end."""
        first = len(self.calls)
        found: list[FsCall] = []
        try:
            yield found
        finally:
            found += self.calls[first:]


def count_by_operation(calls: Iterable[FsCall]) -> Counter[str]:
    """How often each operation was asked for."""
    return Counter(call.operation for call in calls)


def bytes_by_operation(calls: Iterable[FsCall]) -> dict[str, int]:
    """The bytes of each operation, without operations of no bytes."""
    sizes: Counter[str] = Counter()
    for call in calls:
        sizes[call.operation] += call.size_bytes
    return {operation: size for operation, size in sizes.items() if size}


def paths_of(calls: Iterable[FsCall], *operations: str) -> list[Path]:
    """The files of these operations, in order."""
    return [call.path for call in calls if call.operation in operations]


def _size_of_call(operation: str, arguments: tuple[Any, ...], answer: Any) -> int:
    if operation in MAPPING_OPERATIONS:
        return int(answer.size_bytes)
    if operation in WRITING_OPERATIONS:
        return len(arguments[0])
    return len(answer) if operation == "read" else 0


def _size_of_access(operation: str, arguments: tuple[Any, ...]) -> int:
    if operation == "write":
        return len(arguments[1])
    return int(arguments[1]) if operation in ("check_readable", "populate") else 0
