# SPDX-License-Identifier: Apache-2.0
"""The states of the three services at a moment, for `reput status`. A state that is not available is None.

Imported only when a service listens, because it imports the client.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.janitor.v1 import retention_service_pb2 as retention_pb
from reput_client import Client, DeadlineExceededError, DelayLevel, ReputError, UnavailableError

from cli.commands.state.beside import Beside
from cli.commands.state.standing import Still
from libs.verdict import is_recovering

T = TypeVar("T")


class States:
    """The states from a look at all services, made at `time_s` by the clock.

    `away` has the services that do not answer, with the reasons; `answer_ms` is the time of each other service's
    answer; `oldest_time_ms` is the store time of the log's first message, 0 if it is not known; `beside` are Delivery
    and the gateway, if there are any; `still` are groups that are held up; `delay_levels` are Delivery's; `targets` are
    the addresses that were asked, for services that have several.
    """

    def __init__(
        self,
        time_s: float,
        away: dict[str, str],
        log: log_pb.GetStatusResponse | None = None,
        index: index_pb.GetStatusResponse | None = None,
        retention: retention_pb.GetStatusResponse | None = None,
        oldest_time_ms: int = 0,
        policy: retention_pb.GetPolicyResponse | None = None,
        last_run: retention_pb.Run | None = None,
        *,
        answer_ms: Mapping[str, float] | None = None,
    ) -> None:
        self.time_s, self.away = time_s, away
        self.log, self.index, self.retention = log, index, retention
        self.oldest_time_ms, self.policy, self.last_run = oldest_time_ms, policy, last_run
        self.answer_ms = answer_ms or {}
        self.beside: Sequence[Beside] = ()
        self.still: Sequence[Still] = ()
        self.delay_levels: Sequence[DelayLevel] = ()
        self.targets: Mapping[str, str] = {}

    @property
    def is_recovering(self) -> bool:
        """Whether the CommitLog still searches the end of its log. The rest of its state is not known then."""
        return is_recovering(self.log)


def look(client: Client, time_s: float, away: dict[str, str], *, is_brief: bool = False) -> States:
    """Ask all services except services that are known to be away. A brief look leaves out fields that seldom change."""
    found: dict[str, Any] = {}
    answer_ms: dict[str, float] = {}
    away = dict(away)
    admin = client.admin
    calls = {"commitlog": admin.commitlog_status, "indexer": admin.indexer_status, "janitor": admin.janitor_status}
    for service, call in calls.items():
        if service in away:
            continue
        begun_s = time.monotonic()
        try:
            found[service] = call()
            answer_ms[service] = 1000 * (time.monotonic() - begun_s)
        except (UnavailableError, DeadlineExceededError) as error:
            away[service] = error.text
    log, retention = found.get("commitlog"), found.get("janitor")
    states = States(time_s, away, log, found.get("indexer"), retention, answer_ms=answer_ms)
    if is_brief:
        return states
    if log is not None and log.state == log_pb.LOG_STATE_SERVING:
        states.oldest_time_ms = _known(lambda: _oldest_time_ms(client), 0)
    if retention is not None:
        states.policy = _known(admin.retention_policy, None)
        states.last_run = _known(lambda: next(iter(admin.retention_history()), None), None)
    return states


def _oldest_time_ms(client: Client) -> int:
    for segment in client.admin.segments():
        if segment.HasField("first_store_time"):
            return int(segment.first_store_time.ToMilliseconds())
    return 0


def _known(call: Callable[[], T], otherwise: T) -> T:
    """Return the answer to a call that may be refused, else `otherwise`: the page does without the answer."""
    with contextlib.suppress(ReputError):
        return call()
    return otherwise
