# SPDX-License-Identifier: Apache-2.0
"""Cycle: the relay's steps, without I/O. A driver does each step and gives its result back.

A batch is assigned in the database before it is sent, with the number of a writer, and stays as it is until the store
answered. So a relay that was killed, or two relays at once, send the same batch under the same number, and the store
has it once.
"""

import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from reput_client import ReputError

from reput_outbox.core.errors import DatabaseTrouble, LeaseLost
from reput_outbox.core.metrics import RelayMetrics
from reput_outbox.core.outcomes import Behind, Doubtful, Halved, Passing, Refused, failure_of
from reput_outbox.core.rows import Row
from reput_outbox.core.settings import RelaySettings
from reput_outbox.core.table import CLEANED_MAX, Claim, Lane, Table

LOG = logging.getLogger("reput_outbox")
CLEAN_EVERY_S = 10.0
HOLDER_SIZE_MAX = 200


@dataclass(frozen=True, slots=True)
class Transact:
    """Run this in a transaction. Its result is the step's; raises DatabaseTrouble or LeaseLost."""

    work: Callable[[Table], Any]


@dataclass(frozen=True, slots=True)
class Send:
    """Send the batch. Raises ReputError, ValueError or TypeError."""

    writer_id: str
    number: int
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the store which of these rows it has. The result is a set of their unique ids; raises ReputError."""

    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, until the relay is asked to stop or rows were added."""

    seconds: float


Step: TypeAlias = Transact | Send | LookUp | Wait
Steps: TypeAlias = Generator[Step, Any, Any]


def new_holder() -> str:
    """Return a name for a relay: where it runs, and a part that no other relay has."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"[-HOLDER_SIZE_MAX:]


class Cycle:
    """The relay's state in its process. `is_stopping` asks it to end."""

    def __init__(
        self,
        settings: RelaySettings,
        is_stopping: Callable[[], bool],
        *,
        hears: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.me, self.metrics = new_holder(), RelayMetrics()
        self._settings, self._is_stopping, self._hears, self._now = settings, is_stopping, hears, now
        self._store_failures = self._database_failures = 0
        self._trouble = ""
        self._beat_s = self._retry_s = self._clean_s = now()

    def steps(self) -> Steps:
        """Yield the steps until the relay is asked to stop."""
        while not self._is_stopping():
            try:
                if (yield from self._take()):
                    LOG.info("outbox relay %s takes over", self.me)
                    self.metrics.is_holder = True
                    yield from self._relay()
            except LeaseLost:
                LOG.info("outbox relay %s stands by: another relay took over", self.me)
            except DatabaseTrouble as error:
                yield from self._back_off(f"database: {error}", self._database_failures)
                self._database_failures += 1
            finally:
                self.metrics.is_holder = False
        try:
            yield Transact(lambda table: table.release(self.me))
        except DatabaseTrouble as error:
            LOG.warning("outbox relay %s could not give its lease back: %s", self.me, error)

    def _take(self) -> Steps:
        """Wait until the lease is free, or its holder does not move, and take it. False if the relay is to stop.

        The holder's beats are compared with this process's own clock, so clocks need not agree.
        """
        seen: Lane | None = None
        since_s = self._now()
        while not self._is_stopping():
            lane = yield Transact(lambda table: table.lane())
            if seen is None or (lane.holder, lane.beat) != (seen.holder, seen.beat):
                seen, since_s = lane, self._now()
            if lane.holder in {"", self.me} or self._now() - since_s >= self._settings.lease_s:
                if (yield Transact(partial(Table.take, me=self.me, seen=lane))):
                    return True
                continue
            yield Wait(min(self._settings.poll_s, self._settings.lease_s / 4))
        return False

    def _relay(self) -> Steps:
        """Send batches until the relay is to stop."""
        self._beat_s = self._now()
        yield from self._tend()
        claim = yield from self._claim()
        while not self._is_stopping():
            if claim.doubtful:
                claim = yield from self._ask(claim)
            elif claim.rows:
                claim = yield from self._send(claim)
            else:
                claim = yield from self._idle()

    def _claim(self, before: Callable[[Table], Any] | None = None) -> Steps:
        """Assign the next batch, in the same transaction as `before`."""

        def work(table: Table) -> Claim:
            if before is not None:
                before(table)
            return table.claim(self.me, self._settings.batch_rows, self._settings.batch_bytes)

        claim = yield Transact(work)
        self._beat_s, self._database_failures = self._now(), 0
        return claim

    def _send(self, claim: Claim) -> Steps:
        """Send a batch, settle it, and return the next claim."""
        lane, rows = claim.lane, claim.rows
        try:
            yield Send(lane.writer_id, lane.next_number, rows)
        except (ReputError, ValueError, TypeError) as error:
            return (yield from self._on_failure(error, claim))
        self._store_failures, self._trouble = 0, ""
        keep = self._settings.keep_s > 0
        following = yield from self._claim(lambda table: table.settle(lane, rows, keep=keep))
        self.metrics.on_sent(len(rows), sum(len(row.body) for row in rows))
        yield from self._tend()
        return following

    def _on_failure(self, error: Exception, claim: Claim) -> Steps:
        """Do as the store's answer says, and return the next claim."""
        failure, lane = failure_of(error, claim.rows), claim.lane
        match failure:
            case Refused(rows, reason):
                level = logging.INFO if all(row.attempts for row in rows) else logging.ERROR
                LOG.log(
                    level,
                    "outbox: row %d is refused and retried later, like %d others of its batch: %s",
                    rows[0].id,
                    len(rows) - 1,
                    reason,
                )
                self.metrics.refused_count += len(rows)
                return (yield from self._claim(lambda table: table.refuse(lane, rows, reason)))
            case Halved(first_id):
                return (yield from self._claim(lambda table: table.unassign(lane, first_id)))
            case Behind(number):
                return (yield from self._rewind(lane, number))
            case Doubtful(reason):
                LOG.warning(
                    "outbox: batch %d of writer %s is stored already or forgotten (%s): restored from a backup? The "
                    "relay asks the store for each row of now, and goes on as a new writer",
                    claim.lane.next_number, claim.lane.writer_id, reason,
                )  # fmt: skip
                self.metrics.renewal_count += 1
                return (yield from self._claim(lambda table: table.renew(lane)))
            case Passing(reason):
                yield from self._tell(f"store: {reason}")
                return (yield from self._claim())

    def _rewind(self, lane: Lane, number: int) -> Steps:
        """Send the kept rows of lost batches again."""
        again_count = 0

        def work(table: Table) -> None:
            nonlocal again_count
            again_count = table.rewind(lane, number)

        following = yield from self._claim(work)
        LOG.error(
            "outbox: the store lost batches %d to %d of writer %s (restored from a backup?); %d rows that were kept "
            "are sent again", number, lane.next_number - 1, lane.writer_id, again_count,
        )  # fmt: skip
        self.metrics.lost_batch_count += lane.next_number - number
        return following

    def _ask(self, claim: Claim) -> Steps:
        """Mark the doubtful rows that the store has, and assign the others."""
        try:
            found = yield LookUp(claim.doubtful)
        except ReputError as error:
            yield from self._tell(f"store, asked for rows that it may have: {error}")
            return (yield from self._claim())
        stored = [row for row in claim.doubtful if row.uid in found]
        unsent = [row for row in claim.doubtful if row.uid not in found]
        self.metrics.found_count += len(stored)
        return (yield from self._claim(lambda table: table.settle_doubtful(claim.lane, stored, unsent)))

    def _idle(self) -> Steps:
        """Tend to the tables, and wait for rows."""
        yield from self._tend()
        if not (yield Transact(lambda table: table.has_work())):
            third_s = self._settings.lease_s / 3
            yield Wait(third_s if self._hears() else min(self._settings.poll_s, third_s))
            if self._now() - self._beat_s < third_s and not (yield Transact(lambda table: table.has_work())):
                return Claim(_NO_LANE, [], [])
        return (yield from self._claim())

    def _tend(self) -> Steps:
        """Delete old rows and retry refused rows, when it is time."""
        if self._now() >= self._clean_s:
            count = yield Transact(lambda table: table.clean(self._settings.keep_s))
            self.metrics.cleaned_count += count
            self._clean_s = self._now() + (0 if count == CLEANED_MAX else CLEAN_EVERY_S)
        if self._now() >= self._retry_s:
            self._retry_s = self._now() + self._settings.retry_s
            yield Transact(lambda table: table.retry(self._settings.batch_rows))

    def _tell(self, trouble: str) -> Steps:
        """Record trouble with the store in the database, and wait."""
        if trouble != self._trouble:
            self._trouble = trouble
            yield Transact(lambda table: table.tell(self.me, trouble))
        yield from self._back_off(trouble, self._store_failures)
        self._store_failures += 1

    def _back_off(self, trouble: str, failure_count: int) -> Steps:
        """Wait longer after each failure in a row."""
        ceiling_s = min(self._settings.backoff_max_s, 0.1 * 2.0 ** min(failure_count, 20))
        if failure_count % 10 == 0:
            LOG.warning("outbox relay %s waits: %s", self.me, trouble)
        self.metrics.failure_count += 1
        yield Wait(ceiling_s * random.uniform(0.5, 1))  # noqa: S311 - no secret


_NO_LANE = Lane("", 0, 0, 0, "", 0, "")
