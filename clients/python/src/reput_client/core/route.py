# SPDX-License-Identifier: Apache-2.0
"""Route: which of a service's targets calls go to. No I/O.

The target stays until a call shows that another one is better: a log that follows another one names its leader, and one
that can't be reached, does not answer in time, is shutting down, or lacks a service that it needs, makes room for the
next of the list. So does a Delivery that does not deliver.
"""

from collections.abc import Sequence

from reput_client.core.errors import DeadlineExceededError, ReputError, UnavailableError

NOT_LEADER = "NOT_LEADER"
LEASE_OVER = "LEASE_OVER"
ELSEWHERE = frozenset({NOT_LEADER, LEASE_OVER, "STOPPING", "DEPENDENCY_UNAVAILABLE"})
"""Reasons after which the next of the list may do better: the second one leads, say, or hears its log."""
ELSEWHERE_BY_SERVICE = {"delivery": ELSEWHERE | {"RECOVERING"}}
"""Where a service has more of them. A Delivery says RECOVERING for as long as its log follows another one."""


class Route:
    """Of one service. `target` is where the next call goes."""

    def __init__(self, targets: Sequence[str], service: str = "") -> None:
        assert targets
        self._targets = list(targets)
        self._elsewhere = ELSEWHERE_BY_SERVICE.get(service, ELSEWHERE)
        self.target = self._targets[0]

    def on_failure(self, target: str, error: ReputError) -> None:
        """Take note of the error of a call that went to `target`."""
        if target != self.target:  # another call has found out before
            return
        if error.reason == NOT_LEADER and error.metadata.get("leader"):
            self.target = error.metadata["leader"]
        elif error.reason in self._elsewhere or (
            isinstance(error, UnavailableError | DeadlineExceededError) and not error.reason
        ):
            self.target = self._after(target)

    def _after(self, target: str) -> str:
        """Return the target behind this one in the list, the first one behind one that is not in it."""
        index = self._targets.index(target) + 1 if target in self._targets else 0
        return self._targets[index % len(self._targets)]
