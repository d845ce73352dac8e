# SPDX-License-Identifier: Apache-2.0
"""The judge: makes a verdict of the facts of a trial. Pure.

Whole: every answer is right and complete. Told: something is not there, is refused or ended, and a service says why and
where. Broken: a wrong answer, a message twice, fewer answers without a word, a bug's trace, an end by a signal.
Invariants: a text that names nothing of the file tells nothing; a refusal is only told by a reason; a missing message
is not told by the refusal of something else.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tests.harm.expected import COPY, LOG, STATES

SHOWN_COUNT = 3
BUG_MARKS = ('"exception"', "Traceback (most recent call last)", "Fatal Python error")
"""Texts that a service writes to its log only because of a bug."""
BUG_CODES = ("UNKNOWN", "INTERNAL")
GONE_CODES = ("UNAVAILABLE", "CANCELLED")
"""Without a reason: from a service that has ended, or ended meanwhile."""
LOUD = frozenset(("warning", "error", "critical"))


class Verdict(enum.Enum):
    """The verdict of a trial: whole, told or broken (see the module)."""

    WHOLE = "whole"
    TOLD = "told"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a call failed. The reason is empty if the service gave no reason."""

    code: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.text:.300}"


@dataclass(frozen=True, slots=True)
class Answer:
    """Lines that came, and how it ended if not well."""

    lines: tuple[str, ...] = ()
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """All answers at a time, the expected answers then, and the services' status, or Delivery's reason to refuse it."""

    when: str
    answers: Mapping[str, Answer]
    expected: Mapping[str, Sequence[str]]
    status: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """A service ended, or did not start. `was_asked` if it was asked to stop; `is_kill` if the harness killed it."""

    service: str
    code: int
    was_asked: bool = False


@dataclass(slots=True)
class Facts:
    """The observations of a trial. `lines` are all that the services wrote from the harm on."""

    file: str
    harm: str
    moment: str
    looks: list[Look] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    """Refusals of the append and the commit after the harm."""
    lines: list[tuple[str, str]] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    """Faults of the trial itself, such as a service that hangs."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict and its reasons: the broken promises, or else the texts that told."""

    verdict: Verdict
    broken: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def judge(facts: Facts, usual: frozenset[str] = frozenset()) -> Judgement:
    """Judge a trial. `usual` are the events that an unharmed store's services write too: they tell nothing."""
    names = names_of(facts.file)
    told = [*_loud_lines(facts.lines, names, usual), *_named_in_status(facts.looks, names)]
    broken = [*facts.trouble, *_bugs(facts.lines), *_bad_ends(facts, bool(told))]
    ended = [end.service for end in facts.ends if not end.was_asked]
    lacking: list[str] = []
    refused = [f"append or commit: {refusal}" for refusal in facts.refusals]
    for refusal in facts.refusals:
        broken += _bad_refusal(refusal, bool(ended))
    for look in facts.looks:
        copies = frozenset(line for line in look.expected.get(LOG, ()) if line.startswith(COPY))
        for question, answer in look.answers.items():
            expected = look.expected.get(question, ())
            where = f"{look.when}, {question}"
            broken += [f"{where}: {text}" for text in _wrong(question, answer, expected, copies)]
            if answer.refusal is not None:
                refused.append(f"{where}: {answer.refusal}")
                broken += [f"{where}: {text}" for text in _bad_refusal(answer.refusal, bool(ended))]
            else:
                lacking += [f"{where}: {text}" for text in _lacking(question, answer, expected)]
    if lacking and not told:
        broken += [f"without a word: {text}" for text in lacking]
    if broken:
        return Judgement(Verdict.BROKEN, tuple(broken), tuple(lacking), tuple(told))
    if lacking or refused or ended:
        return Judgement(Verdict.TOLD, (), (*lacking, *refused), tuple(told))
    return Judgement(Verdict.WHOLE, (), (), tuple(told))


def names_of(file: str) -> tuple[str, ...]:
    """Return the names by which a text tells of a file: its name, or the name of its only content."""
    path = PurePosixPath(file)
    names = {"consumequeue": (f"{path.parent.parent.name}/{path.parent.name}",), "commitlog": ("missing_bytes",)}
    return (path.name, *names.get(path.parts[0], ()))


def event_of(line: str) -> str:
    """The event of a log line; the line itself if it is none."""
    try:
        return str(json.loads(line).get("event", line))
    except (ValueError, AttributeError):
        return line.strip()


def _loud_lines(lines: Iterable[tuple[str, str]], names: Sequence[str], usual: frozenset[str]) -> list[str]:
    return [
        f"{service}: {line.strip()}"
        for service, line in lines
        if is_loud(line) and any(name in line for name in names) and event_of(line) not in usual
    ]


def is_loud(line: str) -> bool:
    """Whether an operator looks at such a line: of level warning or above, or the last words of a process."""
    try:
        return json.loads(line).get("level") in LOUD
    except (ValueError, AttributeError):
        return True


def _named_in_status(looks: Iterable[Look], names: Sequence[str]) -> list[str]:
    return [f"{look.when}: GetStatus has {name}" for look in looks for name in names if name in look.status]


def _bugs(lines: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"{service} says: {line.strip():.1000}" for service, line in lines if any(mark in line for mark in BUG_MARKS)
    ]


def _bad_ends(facts: Facts, is_told: bool) -> list[str]:
    found = []
    for end in facts.ends:
        last = next((line for service, line in reversed(facts.lines) if service == end.service), "").strip()
        what = f"{end.service} ended{' its stop' if end.was_asked else ''} with {end.code}"
        if end.code < 0:
            found.append(f"{end.service} was ended by signal {-end.code}")
        elif not is_told and (end.code or not end.was_asked):
            found.append(f"{what} and names no file: {last:.500}")
    return found


def _bad_refusal(refusal: Refusal, is_down: bool) -> list[str]:
    """A refusal without a reason comes only from services that have ended."""
    if refusal.code in BUG_CODES or (not refusal.reason and not (is_down and refusal.code in GONE_CODES)):
        return [f"refused with {refusal}"]
    return []


def _wrong(question: str, answer: Answer, expected: Sequence[str], copies: frozenset[str]) -> list[str]:
    """Lines of wrong or misplaced messages, and a message that is there twice and is no delayed message's copy."""
    if question in STATES:
        return []
    strange = [line for line in answer.lines if line not in {*expected, *copies}]
    twice = [line for line, count in Counter(answer.lines).items() if count > 1 and line not in copies]
    return [f"wrong answer {line}" for line in strange[:SHOWN_COUNT]] + [f"twice {line}" for line in twice[:1]]


def _lacking(question: str, answer: Answer, expected: Sequence[str]) -> list[str]:
    """The missing lines, and lines that are there instead or again, where that may be told."""
    missing = [line for line in expected if line not in set(answer.lines)]
    found = [f"{len(missing)} of {len(expected)} are missing: {_some(missing)}"] if missing else []
    other = [line for line in answer.lines if line not in set(expected)]
    if question in STATES:
        return [*found, *([f"instead there is {_some(other)}"] if other else [])]
    again = [line for line, count in (Counter(answer.lines) - Counter(expected)).items() if line.startswith(COPY)]
    return [*found, *([f"delivered again: {_some(again)}"] if again else [])]


def _some(lines: Sequence[str]) -> str:
    return ", ".join(lines[:SHOWN_COUNT])
