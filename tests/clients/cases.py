# SPDX-License-Identifier: Apache-2.0
"""The cases as data: loaded, filled in, and compared with the driver's answers. No I/O but the file.

Invariants: a step that expects nothing still must not fail; a step that expects an error must fail.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_name("cases.yaml")
LANGUAGES = ("python", "go", "java", "node")
_NAME = re.compile(r"\$(\w+(?:\.\w+)?)")
_WORDS = ("do", "expect", "error", "eventually", "keep", "meanwhile", "numbered", "sorted")
"""The words of a step for the harness, which the driver does not get."""


@dataclass(frozen=True)
class Case:
    """A task for a client at a stage."""

    stage: str
    name: str
    steps: Sequence[Mapping[str, Any]]
    ability: str = ""
    """The row of the table in clients/README.md that the case is a part of."""
    languages: Sequence[str] = LANGUAGES
    """The languages whose clients have the ability."""


def load() -> list[Case]:
    """Return all cases in their order. Raises KeyError for a case without an ability, which each case needs."""
    stages = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [
        Case(stage, case["case"], case["steps"], case["ability"], case.get("languages", LANGUAGES))
        for stage, cases in stages.items()
        for case in cases
    ]


def filled_in(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a value with `$name` and `$name.field` replaced. Raises KeyError for an unknown name."""
    if isinstance(value, Mapping):
        return {key: filled_in(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [filled_in(part, names) for part in value]
    if not isinstance(value, str):
        return value
    if whole := _NAME.fullmatch(value):
        return _look_up(whole[1], names)
    return _NAME.sub(lambda found: str(_look_up(found[1], names)), value)


def _look_up(name: str, names: Mapping[str, Any]) -> Any:
    first, _, field = name.partition(".")
    return names[first][field] if field else names[first]


def request_of(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request for the driver."""
    return {"do": step["do"]} | {key: value for key, value in step.items() if key not in _WORDS}


def complaint(step: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return the complaint about an answer, "" for a right answer."""
    if "error" in step:
        return _differs("error", step["error"], answer["error"]) if "error" in answer else f"no error, but {answer}"
    if "error" in answer:
        return f"an error: {answer['error']}"
    told = dict(answer["ok"])
    if "numbered" in step:
        return _misnumbered(told["bodies"], **step["numbered"])
    if step.get("sorted"):
        told["bodies"] = sorted(told["bodies"])
    return _differs("the answer", step.get("expect", {}), told)


def _differs(where: str, expected: Any, found: Any) -> str:
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            return f"{where} is {found!r}"
        parts = (_differs(f"{where}.{key}", value, found.get(key)) for key, value in expected.items())
        return next(filter(None, parts), "")
    if isinstance(expected, str) and len(expected) > 1 and expected[0] == expected[-1] == "/":
        is_same = re.search(expected[1:-1], str(found)) is not None
    else:
        is_same = expected == found
    return "" if is_same else f"{where} is {found!r}, not {expected!r}"


def _misnumbered(
    bodies: Sequence[str], *, prefix: str, count: int, but: Sequence[int] = (), may_repeat: bool = False
) -> str:
    """Return the complaint about bodies that should be a prefix and the numbers below `count`, in their order."""
    if may_repeat:
        bodies = list(dict.fromkeys(bodies))
    expected = [f"{prefix}{number}" for number in range(count) if number not in but]
    if list(bodies) == expected:
        return ""
    at = next((at for at, pair in enumerate(zip(bodies, expected, strict=False)) if pair[0] != pair[1]), None)
    what = "the end" if at is None else f"{bodies[at]!r} in place of {expected[at]!r}"
    return f"{len(bodies)} bodies in place of {len(expected)}; the first difference is {what}"
