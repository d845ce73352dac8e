# SPDX-License-Identifier: Apache-2.0
"""Route: the current target of a service. No I/O.

The target stays until a call shows that another target is better. A follower of a log names its leader, which becomes
the target. The next target of the list is used after a target that can't be reached, does not answer in time, shuts
down, or lacks a service that it needs, and after a Delivery that does not deliver.
"""

from collections.abc import Sequence

from reput_client.core.errors import DeadlineExceededError, ReputError, UnavailableError

NOT_LEADER = "NOT_LEADER"
LEASE_OVER = "LEASE_OVER"
ELSEWHERE = frozenset({NOT_LEADER, LEASE_OVER, "STOPPING", "DEPENDENCY_UNAVAILABLE"})
"""Reasons after which the next target of the list may work: for example, it leads, or it reaches its log."""
ELSEWHERE_BY_SERVICE = {"delivery": ELSEWHERE | {"RECOVERING"}}
"""Services with more such reasons. A Delivery answers RECOVERING while its log is a follower."""


class Route:
    """The route to a service. `target` is the target of the next call."""

    def __init__(self, targets: Sequence[str], service: str = "") -> None:
        assert targets
        self._targets = list(targets)
        self._elsewhere = ELSEWHERE_BY_SERVICE.get(service, ELSEWHERE)
        self.target = self._targets[0]

    def on_failure(self, target: str, error: ReputError) -> None:
        """Change the target if the error of a call to `target` asks for it."""
        if target != self.target:  # another call has changed the target already
            return
        if error.reason == NOT_LEADER and error.metadata.get("leader"):
            self.target = error.metadata["leader"]
        elif error.reason in self._elsewhere or (
            isinstance(error, UnavailableError | DeadlineExceededError) and not error.reason
        ):
            self.target = self._after(target)

    def _after(self, target: str) -> str:
        """Return the next target of the list, or the first target if `target` is not in the list."""
        index = self._targets.index(target) + 1 if target in self._targets else 0
        return self._targets[index % len(self._targets)]
