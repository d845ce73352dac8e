# SPDX-License-Identifier: Apache-2.0
"""Groups of findings: many similar findings take few lines."""

from cli.verify.findings import Counts, Finding
from cli.verify.groups import COPIED_WHILE_RUNNING, Groups, likely_cause


def finding(number: int, code: str = "QUEUE_UNIT_PAST_END", file: str = "consumequeue") -> Finding:
    return Finding(code, "fault", f"{file}/{number}", number, None, "it is so", 1)


def test_the_first_of_a_kind_are_shown() -> None:
    """For each code and kind of file the first findings are shown, and a line has the number of the others."""
    shown: list[Finding] = []
    groups = Groups(shown.append)
    for number in range(50):
        groups.add(finding(number))
    groups.add(finding(0, file="index"))
    assert [one.file for one in shown] == ["consumequeue/0", "consumequeue/1", "consumequeue/2", "index/0"]
    assert list(groups.rest()) == ["FAULT QUEUE_UNIT_PAST_END in consumequeue: and 47 more; --json has each"]


def test_a_copy_of_a_running_store_is_named() -> None:
    """An `abort` beside indexes that do not fit speaks for it; a store that was stopped, or a damaged log, does not."""
    is_open, wrong = {"STORE_NOT_CLEAN": Counts(notes=1)}, {"QUEUE_UNIT_PAST_END": Counts(faults=9)}
    assert likely_cause({**is_open, **wrong}) == COPIED_WHILE_RUNNING
    assert likely_cause(wrong) is None
    assert likely_cause({**is_open, "LOG_BODY_CRC": Counts(faults=1)}) is None
    assert likely_cause({**is_open, "QUEUE_UNIT_MISSING": Counts(notes=3)}) is None
