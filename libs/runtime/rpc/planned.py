# SPDX-License-Identifier: Apache-2.0
"""Planned refusals: a test lets the server refuse the next calls of a method, before the method runs.

While none is planned, a call costs a check of an empty dict. Each batch of an append stream counts as a call.
Callers: a test, in the thread of the event loop that serves.
"""

from collections.abc import Callable

from google.rpc.status_pb2 import Status

from libs.requests.errors import ServiceError

Plan = Callable[[object], Status | None]
"""Takes the context of a call. Returns the status of its refusal, None if the call is to run."""

_plans: dict[str, Plan] = {}


class PlannedRefusal(ServiceError):
    """A refusal with a status that a test has chosen."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def plan(method: str, decide: Plan) -> None:
    """Ask `decide` about each call of a method, by its name without the first slash."""
    _plans[method] = decide


def forget(method: str) -> None:
    """Refuse nothing of this method any more."""
    _plans.pop(method, None)


def is_planned(method: str) -> bool:
    """Return whether calls of this method may be refused."""
    return bool(_plans) and method in _plans


def check(method: str, context: object) -> None:
    """Raise PlannedRefusal if the plan says so."""
    if _plans and (decide := _plans.get(method)) is not None and (status := decide(context)) is not None:
        raise PlannedRefusal(status)
