# SPDX-License-Identifier: Apache-2.0
"""What the engine needs of the CommitLog to deliver delayed messages: appending. `rpc/` implements it over gRPC."""

from typing import NamedTuple, Protocol


class Appended(NamedTuple):
    """A batch that the log has."""

    end_physical_offset: int
    """Where it ends in the log, exclusive."""
    is_on_disk: bool
    """Whether it survives a power cut of the log's machine; what lies before it does then too."""


class LogSink(Protocol):
    """The log's front."""

    async def append(self, request: bytes) -> Appended:
        """Append a serialized AppendRequest, all or nothing, and wait for its durability.

        Raises AppendRefused, and then nothing was appended; DependencyUnavailable, and then nobody knows.
        """
        ...
