# SPDX-License-Identifier: Apache-2.0
"""Tests of the table itself: a wrong answer is found, and the cases can be filled in."""

from typing import Any

import pytest

from tests.clients import drivers, stages
from tests.clients.cases import Case, complaint, filled_in, load, request_of
from tools.gen_abilities import short_form_of


@pytest.mark.parametrize(
    ("step", "answer", "is_right"),
    [
        ({}, {"ok": {}}, True),
        ({}, {"error": {"code": "UNAVAILABLE"}}, False),
        ({"expect": {"a": 1}}, {"ok": {"a": 1, "b": 2}}, True),
        ({"expect": {"a": 1}}, {"ok": {"b": 2}}, False),
        ({"expect": {"a": [1, 2]}}, {"ok": {"a": [2, 1]}}, False),
        ({"expect": {"a": {"x": "y"}}}, {"ok": {"a": {"x": "y", "z": 1}}}, True),
        ({"expect": {"a": {"x": "y"}}}, {"ok": {"a": 7}}, False),
        ({"expect": {"a": "/^b+$/"}}, {"ok": {"a": "bbb"}}, True),
        ({"expect": {"a": "/^b+$/"}}, {"ok": {"a": "abc"}}, False),
        ({"expect": {"a": [1, 2]}, "sorted": True}, {"ok": {"a": [1, 2], "bodies": []}}, True),
        ({"error": {"code": "X"}}, {"error": {"code": "X", "text": "t"}}, True),
        ({"error": {"code": "X"}}, {"error": {"code": "Y"}}, False),
        ({"error": {"code": "X"}}, {"ok": {}}, False),
        ({"numbered": {"prefix": "m", "count": 3}}, {"ok": {"bodies": ["m0", "m1", "m2"]}}, True),
        ({"numbered": {"prefix": "m", "count": 3}}, {"ok": {"bodies": ["m0", "m2", "m1"]}}, False),
        ({"numbered": {"prefix": "m", "count": 3}}, {"ok": {"bodies": ["m0", "m1"]}}, False),
        ({"numbered": {"prefix": "m", "count": 3}}, {"ok": {"bodies": ["m0", "m0", "m1", "m2"]}}, False),
        ({"numbered": {"prefix": "m", "count": 2, "may_repeat": True}}, {"ok": {"bodies": ["m0", "m1", "m0"]}}, True),
        ({"numbered": {"prefix": "m", "count": 3, "but": [1]}}, {"ok": {"bodies": ["m0", "m2"]}}, True),
        ({"numbered": {"prefix": "m", "count": 3, "but": [1]}}, {"ok": {"bodies": ["m0", "m1", "m2"]}}, False),
    ],
)
def test_what_is_wrong(step: dict[str, Any], answer: dict[str, Any], is_right: bool) -> None:
    """A right answer gives no complaint, and any other answer gives a complaint."""
    assert (complaint(step, answer) == "") is is_right


def test_names_are_filled_in() -> None:
    """A name that is the whole of a value keeps its kind, and an unknown name is an error."""
    names = {"topic": "t", "sent": {"offset": 7}}
    filled = filled_in({"a": "$topic", "b": ["$sent.offset", "x-$sent.offset"], "c": 1}, names)
    assert filled == {"a": "t", "b": [7, "x-7"], "c": 1}
    with pytest.raises(KeyError):
        filled_in("$nothing", names)


def test_cases_are_sound() -> None:
    """The stages of the cases exist, their names differ, and each request is in the protocol of the drivers."""
    cases = load()
    assert len({case.name for case in cases}) == len(cases) > 20
    assert {case.stage for case in cases} == set(stages.STAGES)
    protocol = (drivers.ROOT / "tests" / "clients" / "README.md").read_text()
    for case in cases:
        for step in case.steps:
            if "check" not in step:
                asked = request_of(step)
                assert f"| `{asked.pop('do')}` |" in protocol
                assert all(f"`{name}`" in protocol for name in asked), asked


def test_the_short_form_names_the_abilities_that_a_language_lacks() -> None:
    """README.md claims an ability for the languages that run all of its cases, and for no others."""
    cases = [
        Case("s", "a", [], "send"),
        Case("s", "b", [], "filter", ["python"]),
        Case("s", "c", [], "topics"),
        Case("s", "d", [], "topics", ["python"]),
        Case("s", "e", [], "delay", ["python", "go"]),
    ]
    assert short_form_of(cases) == "- Python only: filter; topics.\n- Python, Go only: delay."
