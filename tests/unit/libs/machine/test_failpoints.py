# SPDX-License-Identifier: Apache-2.0
"""Failpoints do nothing until armed, and then exactly the armed action."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from libs.machine import failpoints
from libs.machine.failpoints import FailpointRaised, arm, arm_text, armed, failpoint
from tests.support.patience import LIMIT_S


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    failpoints.disarm_all()


def test_an_unarmed_failpoint_does_nothing() -> None:
    """An unarmed failpoint does nothing, with no name armed and with another name armed."""
    failpoint("a")
    arm("b", lambda: pytest.fail("wrong failpoint"))
    failpoint("a")


def test_armed_ends_with_its_block() -> None:
    """The failpoint acts inside the block, and not after it."""
    with armed("a", "raise"), pytest.raises(FailpointRaised, match="failpoint a"):
        failpoint("a")
    failpoint("a")


def test_the_text_of_the_environment_arms_many() -> None:
    """Parts are separated by semicolons; an ordinal acts once, at that passage."""
    arm_text(" a=raise@3 ; b=sleep:0;; ")
    failpoint("b")
    failpoint("a")
    failpoint("a")
    with pytest.raises(FailpointRaised):
        failpoint("a")
    failpoint("a")


@pytest.mark.parametrize("text", ["a", "=raise", "a=explode", "a=sleep", "a=sleep:x", "a=kill@0", "a=kill@x"])
def test_text_that_makes_no_sense_is_refused(text: str) -> None:
    """A typo must not run a crash test without its crash."""
    with pytest.raises(ValueError, match="failpoint"):
        arm_text(text)


def test_kill_ends_the_process_at_once() -> None:
    """The process dies of SIGKILL at the failpoint: nothing after it runs."""
    program = (
        "from libs.machine.failpoints import arm_text, failpoint; arm_text('a=kill'); print(1, flush=True);"
        "failpoint('a'); print(2, flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (-9, b"1\n")
