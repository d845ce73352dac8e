# SPDX-License-Identifier: Apache-2.0
"""Conditions of properties: RocketMQ's own filter and ours agree, except for the differences in docs/filters.md."""

import itertools
import json
import subprocess
from typing import Any

import pytest

from libs.filters.property_filter import parse_where
from libs.requests.errors import BadArgument
from tests.interop.rocketmq.rocketmq_store import command

pytestmark = pytest.mark.interop

VALUES = (None, "x", "5", "-5", "05", "7", "true", "False", "xyz", "it's")
MESSAGES = [
    {name: value for name, value in (("a", a), ("b", b)) if value is not None}
    for a, b in itertools.product(VALUES, (None, "x", "5"))
]
NUMBERS = ("5", "-5", "7L", "0", "+5")
DOUBLES = ("5.0", "5.", ".5", "5e0", "0.7E1")
SIGNS = ("=", "<>", "<", "<=", ">", ">=")
SIMPLE = (
    *(f"a {sign} {number}" for sign in SIGNS for number in (*NUMBERS, *DOUBLES)),
    *(f"{number} {sign} a" for sign in SIGNS[2:] for number in NUMBERS),
    *(f"a {sign} {value}" for sign in ("=", "<>") for value in ("'x'", "'it''s'", "''", "'5'", "TRUE", "FALSE")),
    *(f"a {sign} b" for sign in ("<", "<=", ">", ">=")),
    *(f"a {word}IN ('x', '5', 'it''s')" for word in ("", "NOT ")),
    *(f"a {word}BETWEEN {low} AND 7" for word in ("", "not ") for low in (-5, 5, 7)),
    *(
        f"a {word}{how} {text}"
        for word in ("", "NOT ")
        for how in ("CONTAINS", "startswith", "EndsWith")
        for text in ("'x'", "'z'", "''", "'t''s'")
    ),
    "a IS NULL",
    "a is not null",
    "(a = 'x') IS NULL",
    "(a = 'x') = TRUE",
    "(a = 'x') <> FALSE",
    "TRUE",
    "FALSE",
    "NULL",
)
PARTS = ("a = 'x'", "a IN ('5', 'x')", "b = '5'", "b <> 'x'", "a IS NULL", "b CONTAINS 'x'", "TRUE", "NULL")
JOINED = (
    *(f"{left} {word} {right}" for left in PARTS for word in ("AND", "OR") for right in PARTS),
    *(f"NOT ({part})" for part in PARTS),
    *(f"NOT ({left} AND NOT ({right}))" for left in PARTS for right in PARTS),
    "a = 'x' OR b = 'x' AND a = '5' OR b = '5'",
    "(a = 'x' OR b = 'x') AND (a = '5' OR b = '5') /* all */ -- of it",
)
REFUSED = (
    "", "a", "a >", "a > 'x'", "a = NULL", "a > NULL", "a > TRUE", "5", "'x'", "a = = 5", "a IN (5)",
    "a IN ()", "5 IN ('x')", "a BETWEEN 7 AND 5", "a = 9223372036854775808", "a = 1e999", "a CONTAINS b",
    "(a = 5", "a = 'x", "07 = a", "é = 5", "a != 5", "in = 5",
)  # fmt: skip
DIFFERENT = {  # a row of the table in docs/filters.md for each
    ("a > 5", "3000000000"): ("error", True),
    ("a > 5", "5.5"): ("error", True),
    ("a > 5 OR a = 'x'", "x"): ("error", True),
    ("NOT a = 5", "7"): (False, True),
    ("5 <> b", "x"): (True, None),
    ("a = b", "x"): (False, None),
    ("b = c", "x"): (True, None),
    ("a", "true"): (False, True),
    ("NOT a", "true"): (True, False),
    ("TRUE = a", "true"): ("error", True),
    ("a > 5.5", " 7"): (True, None),
    ("a > 5.5", "7d"): (True, None),
    ("a > 5.5", "NaN"): (True, None),
    ("a > 0.0", "5"): ("refused", True),
    ("a = 'x' b", "x"): (True, "refused"),
    ("a LIKE 'x'", "x"): (False, "refused"),
    ("-a > 5", "-7"): (None, "refused"),
    ("(a = 1) = 5", "1"): (False, "refused"),
    ("5 CONTAINS '5'", "5"): (False, "refused"),
}


def ask_rocketmq(questions: list[tuple[str, list[dict[str, str]]]]) -> list[list[Any]]:
    """Return the results of RocketMQ's filter of 5.3."""
    arguments = [*command("5")[:-1], "reput.interop.Release5Filter"]
    lines = "".join(json.dumps({"expression": text, "messages": messages}) + "\n" for text, messages in questions)
    done = subprocess.run(arguments, input=lines, capture_output=True, text=True, check=True, timeout=300)
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask_us(expression: str, messages: list[dict[str, str]]) -> list[Any]:
    """Return the results of our filter, in the same form."""
    try:
        where = parse_where(expression, field="where")
    except BadArgument:
        return ["refused"]
    names = [name.decode() for name in where.names]
    return [where.test([message[name].encode() if name in message else None for name in names]) for message in messages]


def test_the_same_answers() -> None:
    """RocketMQ's filter and ours agree on every form of a condition, alone and joined.

    The messages have and lack its properties. An error of RocketMQ's evaluation, which no message passes, is unknown
    here.
    """
    expressions = [*SIMPLE, *JOINED]
    answers = ask_rocketmq([(expression, MESSAGES) for expression in expressions])
    assert len(answers) == len(expressions)
    for expression, theirs in zip(expressions, answers, strict=True):
        ours = ask_us(expression, MESSAGES)
        assert ours == [None if said == "error" else said for said in theirs], expression


def test_the_same_refusals() -> None:
    """An expression that RocketMQ refuses is refused here.

    There are two exceptions: an empty expression accepts every message, and a property alone is a condition.
    """
    for expression, theirs in zip(REFUSED, ask_rocketmq([(text, MESSAGES) for text in REFUSED]), strict=True):
        is_ours = expression in ("", "a")
        assert is_ours or ask_us(expression, MESSAGES) == ["refused"], expression
        assert expression == "a" or theirs == ["refused"], expression


def test_what_differs_is_told() -> None:
    """Each row of the table of differences is true for RocketMQ and for Reput."""
    questions = [(expression, [{"a": value}]) for expression, value in DIFFERENT]
    for (expression, messages), theirs in zip(questions, ask_rocketmq(questions), strict=True):
        (ours,) = ask_us(expression, messages)
        assert (theirs[0], ours) == DIFFERENT[expression, messages[0]["a"]], expression
