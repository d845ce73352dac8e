# SPDX-License-Identifier: Apache-2.0
"""Changer: makes a change of a topic over shards, step by step, beside other programs. It imports the client.

A change that is under way is finished first. A share that was refused because it changed meanwhile is read again, and
a call whose outcome is unknown is repeated: a step that was made already is accepted again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from reput_client import AlreadyExistsError, DeadlineExceededError, NotFoundError, ReputError, UnavailableError
from reput_client.core.errors import was_never_sent
from reput_client.core.retry import RETRYABLE_REASONS

from cli.commands.shards.plans import has_all_keys, is_made, strangers
from cli.commands.shards.shares import ShardFailed, make_room, read, write
from cli.exit_codes import CommandFailed, ExitCode, code_of
from cli.output.lines import warning_line
from libs.shards.change import ChangeRefused, next_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reput_client import Client

    from cli.commands.shards.plans import Plan
    from cli.commands.shards.shares import Seen
    from libs.formats.config.topic_share import ShareChange
    from libs.shards.change import Write

ROUNDS_MAX: Final = 50
"""How often shares are read again because another program changed them."""
ROUND_PAUSE_S: Final = 0.1
PATIENCE_S: Final = 30.0
"""How long calls for a change under way are repeated that fail."""
READS_MAX: Final = 5
"""How often a topic is read whose queues do not have all keys."""
DELAY_MIN_S, DELAY_MAX_S = 0.1, 2.0


class Changer:
    """Changes a topic. With `is_tried` it reads the topic, and makes all writes in its memory alone."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        topic: str,
        *,
        is_tried: bool = False,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clients, self._topic, self._is_tried = clients, topic, is_tried
        self._now_s, self._sleep = now_s, sleep
        self._seen: Seen | None = None
        self._begun: ShareChange | None = None
        self._finished: list[ShareChange] = []
        self._is_under_way = False
        self._rounds = self._failures = 0
        self._failing_since_s: float | None = None

    @property
    def seen(self) -> Seen:
        """The topic after the last step."""
        assert self._seen is not None
        return self._seen

    @property
    def finished(self) -> list[ShareChange]:
        """The changes of other programs that were finished on the way."""
        return self._finished

    def make(self, plan: Plan) -> ShareChange | None:
        """Make a change, after the change that is under way. Returns it, None if the plan changes nothing.

        Raises CommandFailed, and NotFoundError if no shard has the topic.
        """
        self._begun, self._rounds = None, 0
        try:
            while not self._is_done(plan):
                pass
        except ChangeRefused as refusal:
            raise refused(self._topic, refusal) from refusal
        except KeyboardInterrupt:
            if self._is_under_way:
                warning_line(self._under_way_text("it was interrupted"))
            raise
        return self._begun

    def _is_done(self, plan: Plan) -> bool:
        """Make the next write, or wait after a failure. Returns whether all is done."""
        try:
            if (step := self._next(plan)) is None:
                return True
            self._write(step)
        except ShardFailed as failure:
            self._seen = None
            self._wait(failure)
        else:
            self._failures, self._failing_since_s = 0, None
        return False

    def _next(self, plan: Plan) -> Write | None:
        """Return the next write. None if all is done."""
        if self._seen is None:
            self._seen = self._read()
            self._is_under_way = self._seen.change is not None
        seen = self._seen
        if (step := next_step(seen.shares)) is not None:
            self._note(seen.change)
            return step
        if self._begun is not None and is_made(seen.shares, self._begun):
            return None
        self._begun = None
        if (step := plan(seen)) is not None:
            if not self._is_tried:
                make_room(self._clients, self._topic, step, seen)
            self._begun = step.share.change
        return step

    def _read(self) -> Seen:
        """Read the topic. Another change between the reads may hide keys, so it is read again. Raises ChangeRefused."""
        for _ in range(READS_MAX):
            seen = read(self._clients, self._topic)
            if away := strangers(seen, self._clients):
                raise ChangeRefused(
                    f"its change under way has queues at {', '.join(away)}, which the file does not name"
                )
            if seen.change is not None or not seen.shares or has_all_keys(seen.shares):
                return seen
            self._sleep(ROUND_PAUSE_S)
        raise ChangeRefused(
            "its open queues at the shards of the file do not have all keys: is a shard missing in the file, or was "
            "`reput shards create` broken off?"
        )

    def _write(self, step: Write) -> None:
        seen, was_under_way = self.seen, self._is_under_way
        if self._is_tried:
            seen.note(step)
            return
        self._is_under_way = True
        try:
            write(self._clients, self._topic, step, seen)
        except ShardFailed as failure:
            self._is_under_way = was_under_way or is_unknown(failure.error)
            raise
        self._is_under_way = seen.change is not None

    def _note(self, change: ShareChange | None) -> None:
        assert change is not None
        if change not in (self._begun, *self._finished[-1:]):
            self._finished.append(change)

    def _wait(self, failure: ShardFailed) -> None:
        """Wait before the next attempt. Raises CommandFailed if there is none."""
        error = failure.error
        if is_conflict(error) and self._rounds < ROUNDS_MAX:
            self._rounds += 1
            self._sleep(ROUND_PAUSE_S)
            return
        if not self._is_under_way:
            raise unchanged(failure) from failure
        now_s = self._now_s()
        since_s = self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s
        if not is_passing(error) or now_s - since_s >= PATIENCE_S:
            text = self._under_way_text(str(failure))
            raise CommandFailed("CHANGE_UNDER_WAY", text, code=code_of(error)) from failure
        self._sleep(min(DELAY_MAX_S, DELAY_MIN_S * 2**self._failures))
        self._failures += 1

    def _under_way_text(self, reason: str) -> str:
        return (
            f"a change of topic {self._topic} is under way, or was about to begin: {reason}; "
            f"`reput shards finish {self._topic}` finishes it"
        )


def unchanged(failure: ShardFailed) -> CommandFailed:
    """Return the error for a shard that failed before the topic was changed."""
    return CommandFailed("SHARD_FAILED", f"{failure}; nothing was changed", code=code_of(failure.error))


def refused(topic: str, refusal: ChangeRefused) -> CommandFailed:
    """Return the error for a change that a topic can't have."""
    return CommandFailed("CHANGE_REFUSED", f"topic {topic}: {refusal}", code=ExitCode.REFUSED)


def is_conflict(error: ReputError) -> bool:
    """Return whether a share was refused because it changed since it was read."""
    is_other = error.reason == "BAD_ARGUMENT" and "share" in error.fields
    return is_other or error.reason == "SHARE_OUTDATED" or isinstance(error, AlreadyExistsError | NotFoundError)


def is_passing(error: ReputError) -> bool:
    """Return whether a repetition of the same call may have an answer."""
    return error.reason in RETRYABLE_REASONS or isinstance(error, UnavailableError | DeadlineExceededError)


def is_unknown(error: ReputError) -> bool:
    """Return whether the call may have had its effect."""
    return is_passing(error) and error.reason not in RETRYABLE_REASONS and not was_never_sent(error)
