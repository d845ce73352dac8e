# SPDX-License-Identifier: Apache-2.0
"""`reput consume` without an end of its own: outages are waited out, refusals are not."""

from collections.abc import Callable

import grpc
import pytest
from reput_client import ReputError, UnavailableError

from cli.commands.groups.consume import go_on

AWAY = UnavailableError("nobody listens", code=grpc.StatusCode.UNAVAILABLE)
GONE = ReputError("no such topic", code=grpc.StatusCode.NOT_FOUND, reason="TOPIC_NOT_FOUND")
REFUSED = ReputError("no", code=grpc.StatusCode.PERMISSION_DENIED, reason="PERMISSION_DENIED")


def steps(*outcomes: int | ReputError) -> Callable[[int, float], int]:
    """Calls with these outcomes in turn, and Ctrl-C at the end."""
    left = list(outcomes)

    def step(_room: int, _poll_s: float) -> int:
        if not left:
            raise KeyboardInterrupt
        outcome = left.pop(0)
        if isinstance(outcome, ReputError):
            raise outcome
        return outcome

    return step


def test_an_outage_is_waited_out(capsys: pytest.CaptureFixture[str]) -> None:
    """An outage is reported once for each reason, and its end, too; delays grow.

    A missing topic may be made again.
    """
    delays_s: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        go_on(steps(3, AWAY, AWAY, AWAY, GONE, 0, 2, GONE), delays_s.append)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" after ")[0] for line in lines] == [
        f"warning: consuming does not work, and is tried again until it does: {AWAY}",
        f"warning: consuming does not work, and is tried again until it does: {GONE}",
        "warning: consuming works again",
        f"warning: consuming does not work, and is tried again until it does: {GONE}",
    ]
    assert lines[2].endswith(" s and 4 failed calls")
    assert len(delays_s) == 5
    assert 0 < delays_s[0] <= 0.05 < delays_s[3] <= 5


@pytest.mark.parametrize("outcomes", [(AWAY,), (GONE,), (1, REFUSED), (1, AWAY, REFUSED)])
def test_other_failures_end_it(outcomes: tuple[int | ReputError, ...]) -> None:
    """A refusal ends `reput consume` at any time, and any failure ends it at the first call.

    So a wrong address or a misspelt topic is noticed.
    """
    with pytest.raises(ReputError) as caught:
        go_on(steps(*outcomes), lambda _seconds: None)
    assert caught.value is outcomes[-1]
