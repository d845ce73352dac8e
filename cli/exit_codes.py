# SPDX-License-Identifier: Apache-2.0
"""Exit codes of every command, for scripts, and the error that gives each."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reput_client import ReputError


class ExitCode(IntEnum):
    """The exit code of a command. `serve` and `up` have codes of their own for a failed start."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    REFUSED = 5
    DAMAGED = 6
    NOT_WELL = 7
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed in another way, for example a file that can't be read or a bug in a server",
    ExitCode.USAGE: "the command line or the configuration is wrong",
    ExitCode.NOT_FOUND: "the requested topic, group, message or other object does not exist",
    ExitCode.UNAVAILABLE: "a service can't be reached, is not ready, or did not answer in time",
    ExitCode.REFUSED: "a service refused: bad argument, no permission, full, exists already",
    ExitCode.DAMAGED: "stored bytes are damaged",
    ExitCode.NOT_WELL: "all services answer, but the store has a problem: `status` and `top` name it (`check` has the "
    "codes 0 to 3 of Nagios)",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}
"""`reput --help` and docs/cli.md print these."""

SERVE_MEANINGS = {
    0: "stopped cleanly",
    1: "failed",
    2: "the command line or the configuration is wrong",
    3: "a sync failed and the store sealed itself",
    4: "the address is in use",
    5: "the store is in use by another process",
    130: "interrupted by Ctrl-C before it began",
}
"""The codes of `reput serve`; `reput up` passes on the code of the service that failed."""

REASONS = {
    "BACKUP_DAMAGED": "a manifest or an object of a backup is missing or damaged, or a restored store has faults",
    "BACKUP_FAILED": "a backup, a prune or a restore could not be done; the text gives the reason",
    "BACKUP_NOT_FOUND": "there is no backup of this id",
    "BAD_ARGUMENT": "an argument is outside of what a request can carry",
    "BAD_LINE": "a line of `put --file` is no message",
    "SHARE_DIFFERS": "a shard has the topic already, with other queues",
    "NO_SHARDS_FILE": "the file that names the shards can't be read",
    "BAD_SHARDS_FILE": "the file that names the shards is no TOML of that form",
    "SHARD_FAILED": "a call to a shard failed; the text names the shard, and says whether anything was changed",
    "CHANGE_REFUSED": "a topic can't be changed in this way; the text gives the reason",
    "CHANGE_UNDER_WAY": "a change of a topic was begun and is not finished: `reput shards finish` finishes it",
    "NOT_EMPTY": "`shards drain` found that the shard still has something besides bytes",
    "BAD_MESSAGE": "a message of `put` can't be sent",
    "CONFIG": "a setting or the configuration file is wrong",
    "CONTEXT_EXISTS": "there is a context of this name already",
    "CONTEXT_NOT_FOUND": "there is no context of this name",
    "DAMAGED": "`inspect`, `verify` or `index rebuild` found damage",
    "FILE": "a file can't be read or written",
    "HANDOVER": "`handover` failed at the next leader, or its result is not known; the text says more",
    "IN_USE": "`verify` found a process that uses the store",
    "BAD_OPTIONS": "options that do not go together",
    "GROUP_IN_USE": "`groups delete` was given a group whose members received within the last 30 s, without --force",
    "GROUP_NOT_FOUND": "there is no group of this name",
    "GROUP_SHARES": "`groups commit` was asked to move a group that shares messages",
    "NOT_CONFIRMED": "a question was answered with no, or input is no terminal and --yes was not given",
    "NOT_OPERATOR": "`audit list` was called without the token of an operator",
    "NOT_REBUILT": "`index rebuild` could not continue; the text gives the reason",
    "NOT_REPLAYED": "`dlq replay` left letters where they are; the text gives the reason",
    "NOT_SERVING": "`health` found a server that does not serve",
    "NOT_STORED": "`put` has messages that were not stored; the lines before give the reasons",
    "NO_LEADER": "`replicas` found no leader, or more than one",
    "NO_MESSAGES": "nothing was found",
    "NO_OFFSETS": "`groups delete` was given a group that has none",
    "NO_STORE": "a directory holds nothing of a store",
    "OFFSET_BEYOND_END": "`groups commit --offset` is beyond the end of the queue",
    "OFFSET_TRIMMED": "the queue begins behind `pull --offset`",
    "OUT": "`replicas` was called for a log that can't follow its leader; the text gives the reason",
    "QUEUE_NOT_FOUND": "the topic has no queue of this number",
    "RUN_FAILED": "the CommitLog or the Indexer refused a deletion of `janitor run`",
    "STORE_LOCKED": "another process uses the directory",
    "SUBJECT_NOT_FOUND": "the rights file of `access test` has no subject of this name",
    "SYSTEM": "another error of the operating system",
    "UNAVAILABLE": "no service answers at its address",
    "UNREAD_MESSAGES": "`topics update` would hide messages that groups have not read, and --force is missing",
    "UNKNOWN_KIND": "`inspect` can't tell what kind of file this is",
}
"""Reasons that do not come from a service; docs/cli.md prints them."""


class CommandFailed(Exception):
    """A command failed. `reason` is a word, the text a line."""

    def __init__(self, reason: str, text: str, *, code: ExitCode = ExitCode.FAILED) -> None:
        assert reason in REASONS, reason
        super().__init__(f"{reason}: {text}")
        self.code = code


def code_of(error: ReputError) -> ExitCode:
    """Return the exit code for a failed call."""
    from reput_client import DataLossError, DeadlineExceededError, NotFoundError, ServerError, UnavailableError

    match error:
        case NotFoundError():
            return ExitCode.NOT_FOUND
        case UnavailableError() | DeadlineExceededError():
            return ExitCode.UNAVAILABLE
        case DataLossError():
            return ExitCode.DAMAGED
        case ServerError():
            return ExitCode.FAILED
        case _:
            return ExitCode.REFUSED
