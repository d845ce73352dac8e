# SPDX-License-Identifier: Apache-2.0
"""How long a receive waits for its first message."""

WAIT_S_MAX = 20.0
REQUEST_S = 3.0
"""Libraries wait so long for an answer, in addition to the wait that they ask for."""
MARGIN_S = 0.5
"""An answer begins so long before the deadline, so that it arrives in time."""


def wait_s(asked_s: float | None, remaining_s: float | None) -> float:
    """Return the seconds to wait.

    `asked_s` is the wait that the client asks for. Simple consumers for Go ask for none: their deadline implies it.
    `remaining_s` is the time until the deadline.
    """
    if asked_s is None:
        asked_s = WAIT_S_MAX if remaining_s is None else remaining_s - REQUEST_S / 2
    if remaining_s is not None:
        asked_s = min(asked_s, remaining_s - MARGIN_S)
    return min(max(asked_s, 0.0), WAIT_S_MAX)
