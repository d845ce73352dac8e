# SPDX-License-Identifier: Apache-2.0
"""Files about the history of a log: its name, what an Indexer knows of it, and where deleted topics begin.

The name and the begins are the CommitLog's files, what is known the Indexer's; each is of a kind of its own. Spec:
docs/formats/reput_files.md sections 4 and 7.
"""

import msgspec

from libs.formats.epoch import Epoch
from libs.formats.errors import BadField
from libs.formats.state import checksummed
from libs.formats.state.checksummed import JsonFile

NAME_KIND = "history"


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """Where a queue ends or, if its files were dropped, ended; and the first byte of its last record."""

    topic: str
    queue_id: int
    end_queue_offset: int
    last_physical_offset: int

    @property
    def name(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.topic, self.queue_id


class LogHistoryFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Indexer's file: what it knows of the log besides its indexes."""

    KIND = "log-history"

    history_id: str = ""
    is_complete: bool = True
    known_physical_offset: int = 0
    ends: list[QueueEnd] = msgspec.field(default_factory=list)
    """Those of queues whose files were dropped."""
    epochs: list[Epoch] = msgspec.field(default_factory=list)
    """Those of the log, ascending, as of the last handshake that changed what is held; empty if it told none."""
    topic_begins: dict[str, int] = msgspec.field(default_factory=dict)
    """Where the messages of topics begin that were deleted, as the log told last."""


class TopicBeginsFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The CommitLog's file; what travels to its copies, too."""

    KIND = "topic-begins"

    begins: dict[str, int] = msgspec.field(default_factory=dict)
    """By topic: the physical offset of the log's end at the deletion. Records below it are of the deleted topic."""
    deleting: str = ""
    """The topic whose deletion is under way. It is deleted if `topics.json` does not have it any more."""


def encode_name(history_id: str) -> bytes:
    """Return the CommitLog's file."""
    return checksummed.wrap(NAME_KIND, history_id.encode())


def decode_name(data: bytes) -> str:
    """Return the name in the CommitLog's file. Raises FormatError."""
    try:
        return checksummed.unwrap(NAME_KIND, data).decode("ascii")
    except UnicodeDecodeError as error:
        raise BadField(position=checksummed.HEADER_SIZE_BYTES, reason=str(error), field="content") from error
