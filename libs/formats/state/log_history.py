# SPDX-License-Identifier: Apache-2.0
"""Files about the history of a log: its name, an Indexer's knowledge of it, and where deleted and purged topics begin.

The name and the begins are files of the CommitLog, the knowledge is a file of the Indexer. Each file has its own kind.
Spec: docs/formats/reput_files.md sections 4 and 7.
"""

import msgspec

from libs.formats.epoch import Epoch
from libs.formats.errors import BadField
from libs.formats.state import checksummed
from libs.formats.state.checksummed import JsonFile

NAME_KIND = "history"


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """The end of a queue, or its last end if its files were dropped, and the first byte of its last record."""

    topic: str
    queue_id: int
    end_queue_offset: int
    last_physical_offset: int

    @property
    def name(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.topic, self.queue_id


class LogHistoryFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Indexer's file: its knowledge of the log besides its indexes."""

    KIND = "log-history"

    history_id: str = ""
    is_complete: bool = True
    known_physical_offset: int = 0
    ends: list[QueueEnd] = msgspec.field(default_factory=list)
    """The ends of queues whose files were dropped."""
    epochs: list[Epoch] = msgspec.field(default_factory=list)
    """The log's epochs, ascending, from the last handshake that changed the indexes; empty if it had no epochs."""
    topic_begins: dict[str, int] = msgspec.field(default_factory=dict)
    """Where the messages of deleted and purged topics begin, from the log's last message about them."""


class TopicBeginsFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CommitLog's file, which the leader also sends to its followers."""

    KIND = "topic-begins"

    begins: dict[str, int] = msgspec.field(default_factory=dict)
    """By topic: the log's end at its deletion or purge, a physical offset. Readers get no record of it below."""
    deleting: str = ""
    """The topic whose deletion is under way. It is deleted if `topics.json` does not have it any more."""


def encode_name(history_id: str) -> bytes:
    """Return the CommitLog's file with this name of a history."""
    return checksummed.wrap(NAME_KIND, history_id.encode())


def decode_name(data: bytes) -> str:
    """Return the name in the CommitLog's file. Raises FormatError."""
    try:
        return checksummed.unwrap(NAME_KIND, data).decode("ascii")
    except UnicodeDecodeError as error:
        raise BadField(position=checksummed.HEADER_SIZE_BYTES, reason=str(error), field="content") from error
