# SPDX-License-Identifier: Apache-2.0
"""ElectedMember: makes a log lead or follow as the coordinator's record says, and stand for election without a leader.

Invariants: a member writes records of an epoch only after it won the election; it stores the promised epoch durably
before others hear of the epoch. Before it stands, it stops to acknowledge to a leader. A leader that lost its term
steps down.
Three loops: decisions, the watch of the coordinator, and the renewal of a leader's lease.
Callers: the loop that owns the log.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from msgspec import Struct

from libs.formats.epoch import Epoch
from libs.formats.state.replication import Member, RoleName, RoleSetting
from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import ServiceError
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.elect import election
from services.commitlog.engine.elect.coordinator import Coordinator, CoordinatorUnavailable, Lost, View
from services.commitlog.engine.elect.election import Decision, Facts, Step
from services.commitlog.engine.elect.leader_term import LeaderTerm
from services.commitlog.engine.elect.lease import Lease
from services.commitlog.engine.keep.epochs import ElectedEpoch, new_history_id
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import ElectedTerm
from services.commitlog.engine.roles import FOLLOWER_ROLE, Roles
from services.commitlog.engine.write.gate import Reason
from services.commitlog.errors import LeaseOver, NotElected, NotLeader

LOOK_MS = 250
TAKE_OVER_S = 10.0
"""Longest wait of a promote call until this log leads."""

UNDECIDED = Decision(Step.FOLLOW, "the coordinator has not answered yet")

_log = logging.getLogger(__name__)


class ElectionStatistics(Struct, frozen=True):
    """Counters and state of one process. Times in milliseconds."""

    won_total: int
    """Elections that this log won."""
    lease_left_ms: int
    """Time until the leader's lease ends, as far as this log knows."""
    record_epoch: int
    """Epoch of the last election record that was seen; 0 without a record."""
    is_by_promises: int
    """1 for a leader that cannot renew its lease and continues because all others promised not to stand."""


@dataclass(slots=True, eq=False)
class ElectedMember:
    """The member of one process. `target` is its address for the other members, host:port."""

    _coordinator: Coordinator
    _roles: Roles
    _clock: Clock
    _config: CommitLogConfig
    target: str
    identity: str
    """Identity of this process at the coordinator."""
    view: View | None = None
    decision: Decision = UNDECIDED
    _acted_on: View | None = None
    election_count: int = 0
    _term: LeaderTerm | None = None
    """Set while this log leads or takes over."""
    _leads: bool = False
    _seen_at_s: float = 0.0
    _bound_until_s: float = 0.0
    """End of a promise not to stand, which may be from before this process started, in monotonic seconds."""
    _deciding: asyncio.Lock = field(default_factory=asyncio.Lock)
    loop: SupervisedLoop = field(init=False)
    watch: SupervisedLoop = field(init=False)

    def __post_init__(self) -> None:
        errors = (ServiceError, Lost)
        self.stand_back(self._config.lease_duration_ms)
        self.loop = SupervisedLoop(
            "election", self._step, interval_ms=LOOK_MS, backoff_ms_max=1_000, expected_errors=errors
        )
        self.watch = SupervisedLoop("coordinator", self._watch, backoff_ms_max=1_000, expected_errors=errors)

    def start(self) -> None:
        """Start the loops. The log is open and follows no leader."""
        self.watch.start()
        self.loop.start()

    async def resign(self) -> None:
        """Stop to decide and hand over, to a follower that has the whole log if there is one. Then refuse appends."""
        await self.loop.stop()
        async with self._deciding:
            await self._roles.no_change()
            if self._term is not None:
                await self._resign(self._term)

    async def stop(self) -> None:
        """Stop all loops. A lease that was not released expires by itself."""
        for loop in (self.loop, self.watch):
            await loop.stop()
        await self._end_term()
        await self._coordinator.close()

    def statistics(self) -> ElectionStatistics:
        """Return a snapshot, for telemetry. Quick, and safe from any thread."""
        view = self.view
        epoch = 0 if view is None or view.record is None else view.record.epoch
        return ElectionStatistics(self.election_count, self.lease_left_ms, epoch, int(self.is_by_promises))

    @property
    def lease_left_ms(self) -> int:
        """Remaining milliseconds of this log's term, 0 if it does not lead."""
        term = self._term
        return 0 if term is None else term.left_ms

    @property
    def bound_ms(self) -> int:
        """Remaining milliseconds of a promise not to stand. The leader's release of its lease ends the promise."""
        return max(round((self._bound_until_s - self._clock.monotonic_s()) * 1000), 0)

    @property
    def is_by_promises(self) -> bool:
        """Whether it leads only by promises of the others, because it cannot renew its lease."""
        return self._term is not None and self._term.is_by_promises

    # Requests of operators and other logs.

    async def promote(self, role: RoleName, *, epoch: int, end_physical_offset: int, accepts_loss: bool) -> Epoch:  # noqa: ARG002
        """See `Decider`: wait until this log is elected, as after a handover. Its settings give the role.

        With `accepts_loss` it takes the lead against the record, unless the lease has a holder.
        """
        with self._roles.asking(), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKE_OVER_S):
                if accepts_loss:
                    await self._force()
                while not self._leads or self._roles.is_changing:
                    self.loop.hurry()
                    await asyncio.sleep(LOOK_MS / 1000 / 10)
                return self._roles.log.epochs.epochs[-1]
        raise NotElected(self.decision.reason)

    async def _force(self) -> None:
        """Take the lead although this log may lack records. Raises NotElected and CoordinatorUnavailable."""
        async with self._deciding:
            await self._roles.no_change()
            if self._leads:
                return
            follower = self._roles.log.follower
            if follower is not None and follower.is_connected:
                raise NotElected(f"the leader, {follower.leader.target}, is there: let it hand over, or stop it")
            seen = await self._coordinator.read()
            if seen.holder:
                raise NotElected("another one holds the lease")
            try:
                await self._take(seen, is_forced=True)
            except Lost:
                raise NotElected("another one was elected meanwhile") from None

    async def demote(self, replica_id: str, leader_target: str, *, epoch: int) -> tuple[RoleSetting, Epoch, int]:
        """See `Decider`. Raises also CoordinatorUnavailable, then this log or another member is elected again."""
        with self._roles.asking():
            async with self._deciding:
                await self._roles.no_change()
                self._roles.check_epoch(epoch)
                log, term, former = self._roles.log, self._term, self._roles.setting
                if log.handover is None or term is None:
                    raise NotLeader(former.leader_target)
                if term.is_by_promises:
                    raise CoordinatorUnavailable("the lease can't be renewed, so no other log can lead")
                last_epoch, end = log.epochs.epochs[-1], await log.handover.run(replica_id, leader_target)
                try:
                    await term.release(replica_id, leaves=False)
                finally:
                    await self._step_down(leader_target)
                return former, last_epoch, end

    def look(self) -> None:
        """Look at the record at once, because another log leads. The record names the leader."""
        self.loop.hurry()

    def stand_back(self, duration_ms: int) -> None:
        """Do not stand for election for `duration_ms`, by the monotonic clock."""
        self._bound_until_s = max(self._bound_until_s, self._clock.monotonic_s() + duration_ms / 1000)

    # The loops.

    async def _watch(self) -> None:
        is_first = True
        async with contextlib.aclosing(self._coordinator.watch()) as views:
            async for view in views:
                if is_first and self._is_older(view):
                    # this log may have been elected meanwhile; a read tells a late view from a restored backup
                    view, self.view = await self._coordinator.read(), None
                is_first = False
                self.watch.succeeded()
                self._know(view)
        raise CoordinatorUnavailable("the watch has ended")

    def _is_older(self, view: View) -> bool:
        return self.view is not None and view.record is not None and view.record_version < self.view.record_version

    def _know(self, view: View) -> None:
        """Take over a view, unless it is older than the known view."""
        if view != self.view and not self._is_older(view):
            self.view, self._seen_at_s = view, self._clock.monotonic_s()
            self.loop.hurry()

    async def _step(self) -> None:
        async with self._deciding:
            if self.view is None or self._roles.is_changing:
                return
            try:
                await self._act(self.view)
            except Lost:  # the watch may be silent: it may have overtaken the answer of an election
                self._know(await self._coordinator.read())
                raise

    async def _act(self, view: View) -> None:
        is_new, self._acted_on = view is not self._acted_on, view
        seen_for_ms = round((self._clock.monotonic_s() - self._seen_at_s) * 1000)
        decision = election.decide(view, await self._facts(), seen_for_ms)
        if decision != self.decision:
            _log.info("%s: %s", decision.step.name.lower(), decision.reason)
            self.decision = decision
        match decision.step:
            case Step.LEAD:
                await self._fence(is_held=bool(view.holder))
            case Step.FOLLOW:
                await self._follow(decision.target, is_new=is_new)
            case Step.STAND | Step.CREATE:
                await self._take(view)

    async def _facts(self) -> Facts:
        log = self._roles.log
        store_id = await log.identity.claim()
        return Facts(
            member=Member(self._config.replica_id, store_id),
            identity=self.identity,
            history_id=log.epochs.history_id,
            promised_epoch=max(log.identity.promised_epoch, log.epochs.number),
            end_physical_offset=log.marks.flushed.value,
            leads_in=self._term.epoch if self._leads and self._term else 0,
            may_create=log.identity.promised_epoch == 0
            and self._config.bootstrap_replica_id == self._config.replica_id,
            unfit=_unfit(log),
            is_bound=self.bound_ms > 0,
            is_by_promises=self.is_by_promises,
        )

    async def _fence(self, *, is_held: bool) -> None:
        """Refuse appends while another log may lead. A lost lease is not renewed: step down."""
        assert self._term is not None
        if self._term.lease.is_lost:
            await self._step_down("")
            return
        if not is_held:
            self._term.lease.run_out()
        is_over, gate = self._term.left_ms == 0, self._roles.log.gate
        if is_over and not gate.holds(Reason.NOT_LEADER):
            _log.warning("the lease could not be renewed in time, so this log takes no appends")
            gate.hand_over("")
        elif not is_over and gate.holds(Reason.NOT_LEADER):
            gate.put(Reason.NOT_LEADER, holds=False)

    async def _follow(self, target: str, *, is_new: bool) -> None:
        follower = self._roles.log.follower
        if follower is None:
            await self._step_down(target)
        elif target != self._roles.setting.leader_target:
            await self._roles.change(self._roles.follow_other_leader(target))
        elif is_new and not follower.is_connected:
            follower.loop.hurry()  # the same leader is back: end the long back-off

    async def _step_down(self, target: str) -> None:
        """Follow `target` after leading."""
        await self._roles.change(self._end_reign(target))

    async def _end_reign(self, target: str) -> None:
        await self._end_term()
        await self._roles.reopen(RoleSetting(FOLLOWER_ROLE, target))

    async def _end_term(self) -> None:
        term, self._term, self._leads = self._term, None, False
        if term is not None:
            term.lease.is_lost = True
            await term.lease.loop.stop()

    async def _take(self, seen: View, *, is_forced: bool = False) -> None:
        """Stand for election, and lead after a win. Raises Lost."""
        log = self._roles.log
        assert log.follower is not None
        await self._roles.change(self._roles.follow_other_leader(""))  # stop to acknowledge to a leader
        await log.marks.flushed.soon(log.marks.wrote.value)
        facts, sent_at_s = await self._facts(), self._clock.monotonic_s()
        if not is_forced and election.decide(seen, facts, election.SUCCESSOR_MS).step is Step.FOLLOW:
            raise Lost("a promise to the leader has come between")
        if seen.record is None or is_forced:
            record = election.first_record(seen.record, facts, facts.history_id or new_history_id(), self.target)
        else:
            record = election.elected_record(seen.record, facts, self.target)
        won = await self._coordinator.elect(seen, record)
        self._know(won)
        self.election_count += 1
        _log.info(
            "elected in epoch %d, in sync: %s", record.epoch, ", ".join(member.replica_id for member in record.in_sync)
        )
        config = self._config
        lease = Lease(self._coordinator, self._clock, config.lease_duration_ms, sent_at_s, config.lease_renew_ms)
        lease.loop.start()
        self._term = LeaderTerm(self._coordinator, lease, record, won)
        await self._roles.change(self._begin_term(log, self._term))

    async def _begin_term(self, log: OpenLog, term: LeaderTerm) -> None:
        try:
            await log.identity.promise(term.epoch)
            elected = ElectedEpoch(term.epoch, term.record_seen.history_id)
            await self._roles.reopen(
                RoleSetting(self._config.role_name), term=ElectedTerm(elected, term, term.check, term)
            )
        except BaseException:
            await self._end_term()
            raise
        self._leads = True

    async def _resign(self, term: LeaderTerm) -> None:
        """Hand over to the best follower in sync, or only release the lease."""
        log, successor = self._roles.log, ""
        candidates = [replica for replica in log.replicas.connected if replica.is_in_sync]
        for replica in sorted(candidates, key=lambda each: -each.flushed_physical_offset):
            if await _has_all(log, replica.replica_id):
                successor = replica.replica_id
                break
        log.gate.hand_over("")
        try:
            await term.release(successor, leaves=True)
        except (LeaseOver, CoordinatorUnavailable) as error:
            _log.warning("the lease is not given back: %s", error)


async def _has_all(log: OpenLog, replica_id: str) -> bool:
    """Wait for a follower to catch up. Return whether it has the whole log. If so, appends are refused from then on."""
    try:
        assert log.handover is not None
        await log.handover.run(replica_id, "")
    except ServiceError as error:
        _log.info("%s can't lead next: %s", replica_id, error)
        return False
    return True


def _unfit(log: OpenLog) -> str:
    """Return why a log cannot lead, empty if it can."""
    if log.seal.is_set:
        return "a sync or a write failed"
    if log.gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN):
        return "its queue offsets are not known"
    return ""
