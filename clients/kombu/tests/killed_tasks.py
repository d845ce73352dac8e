# SPDX-License-Identifier: Apache-2.0
"""The application of the tests with kills: a task writes a line for each of its effects to the file REPUT_EFFECTS."""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import kombu_reput  # noqa: F401 - makes reput:// known
from celery import Celery, current_task

LEASE_S = 3.0
ACK_S = 3.0
"""How long a worker on a busy machine may take from an effect to its acknowledgement."""
CAUSES = {"retry": "try", "second": "first"}
"""Tasks that publish others: a run of the cause is a message of the other."""


class Run(NamedTuple):
    """A line of the file: an effect, its time, when it was due, its worker, whether its message came again."""

    name: str
    at_s: float
    due_s: float
    worker: str
    is_redelivered: bool


class Kill(NamedTuple):
    """A SIGKILL of a worker or of `store`, and when it was back."""

    what: str
    at_s: float
    back_s: float


app = Celery("killed", broker="reput:///killed")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=2,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"lease_s": LEASE_S, "retry_delay_s": 0.1, "attempts_max": 1000},
    include=["killed_tasks"],
)


def effect(name: str, due_s: float) -> None:
    """Write what happened. A short line is written at once."""
    request = current_task.request
    is_redelivered = bool((request.delivery_info or {}).get("redelivered"))
    line = f"{name} {time.time():.6f} {due_s:.6f} {request.hostname} {is_redelivered:d}\n"
    out = os.open(os.environ["REPUT_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(out, line.encode())
    os.close(out)


def runs_in(lines: Sequence[str]) -> list[Run]:
    """Return the runs that lines tell of, in the order of their times."""
    parts = (line.split() for line in lines)
    runs = (Run(name, float(at), float(due), worker, again == "1") for name, at, due, worker, again in parts)
    return sorted(runs, key=lambda run: run.at_s)


def repetitions(runs: Sequence[Run], kills: Sequence[Kill]) -> Iterator[tuple[Run, str]]:
    """Yield each run whose effect had happened before, and why it ran; the reason is empty if no kill explains it."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    for name, same in by_name.items():
        kind, _, number = name.partition("-")
        cause_count = len(by_name.get(f"{CAUSES.get(kind, '')}-{number}", ()))
        for earlier, later in pairwise(same):
            if not later.is_redelivered and not earlier.is_redelivered and cause_count > 1:
                yield later, f"{CAUSES[kind]}-{number} ran {cause_count} times, and each run published it"
            else:
                yield later, _reason(earlier, later, kills)


def _reason(earlier: Run, later: Run, kills: Sequence[Kill]) -> str:
    """Return the kill that kept the acknowledgement of an earlier run from the log, empty without one."""
    away = [kill for kill in kills if kill.what == "store" and kill.at_s < later.at_s]
    for kill in kills:
        after_s = kill.at_s - earlier.at_s
        waited_s = sum(
            min(one.back_s, kill.at_s) - one.at_s for one in away if earlier.at_s - ACK_S < one.at_s < kill.at_s
        )
        if kill.what == earlier.worker and -0.1 < after_s < ACK_S + waited_s and kill.at_s < later.at_s:
            return f"{kill.what} was killed {after_s:.2f} s after its effect" + (
                f", the store away for {waited_s:.1f} s" if waited_s else ""
            )
    for kill in away:
        if kill.at_s - ACK_S < earlier.at_s < kill.back_s + LEASE_S + ACK_S:
            after_s = kill.at_s - earlier.at_s
            return (
                f"the store was killed {abs(after_s):.2f} s {'after' if after_s > 0 else 'before'} its effect, and "
                f"away for {kill.back_s - kill.at_s:.1f} s; the lease is {LEASE_S:.0f} s"
            )
    return ""


@app.task
def at_time(name: str, due_s: float) -> None:
    """Take a moment, and have an effect."""
    time.sleep(0.05)
    effect(name, due_s)


@app.task(bind=True, max_retries=10)
def in_second_attempt(self, name: str, due_s: float = 0.0) -> None:  # type: ignore[no-untyped-def]
    """Have an effect `try` and fail once, and another when it is tried again after a second."""
    if self.request.retries == 0:
        effect(name.replace("retry", "try"), 0.0)
        raise self.retry(countdown=1, kwargs={"due_s": time.time() + 1}, args=(name,))
    effect(name, due_s)


@app.task
def link(name: str) -> None:
    """Have an effect as a part of a chain."""
    time.sleep(0.02)
    effect(name, 0.0)
