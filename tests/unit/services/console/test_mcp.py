# SPDX-License-Identifier: Apache-2.0
"""The tools' arguments and the size of their answers, without a store."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
from reput_client import Options

from services.console.ask.store import Asking, Store
from services.console.mcp.answers import ANSWER_BYTES_MAX, Answer, Whole, fitting, json_of, size_of
from services.console.mcp.arguments import Refused, checked, schema_of
from services.console.mcp.tools.catalogue import TOOLS
from services.console.pages.mask import Mask
from services.console.pages.page import Gap
from tests.support.reput_up import run_here

REFUSALS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("find_by_key", {}, "key is missing"),
    ("find_by_key", {"key": None}, "key is missing"),
    ("find_by_key", {"key": ""}, "key is '': expected str of length >= 1"),
    ("find_by_key", {"key": "a b"}, "key is 'a b': it must have no spaces"),
    ("find_by_key", {"key": "x'; DROP TABLE messages; --"}, "it must have no spaces"),
    ("find_by_key", {"key": "k" * 5_000}, "(5,000 characters): expected str of length <= 1024"),
    ("find_by_key", {"key": "a\x00b"}, "the character U+0000 at position 1 is not printable"),
    ("find_by_key", {"key": "a\ud800"}, "the character U+D800 at position 1 is not printable"),
    ("find_by_key", {"key": "\u202eevil"}, "the character U+202E at position 0 is not printable"),
    ("find_by_key", {"key": ["k"]}, "key is ['k']: expected str, got array"),
    ("find_by_key", {"key": "k", "limit": -1}, "limit is -1: expected int >= 1"),
    ("find_by_key", {"key": "k", "limit": 10**30}, f"limit is {10**30}: expected int <= 100"),
    ("find_by_key", {"key": "k", "limit": "5"}, "limit is '5': expected int, got str"),
    ("find_by_key", {"key": "k", "limit": True}, "limit is True: expected int, got bool"),
    ("find_by_key", {"key": "k", "limit": 1e400}, "limit is inf: expected int, got float"),
    (
        "find_by_key",
        {"key": "k", "where": "1=1"},
        "'where' is no argument: allowed are key, topic, after_topic, start, end, next_token, limit",
    ),
    ("find_by_key", {"key": "k", "topic": "../../etc/passwd"}, "letters, digits and %|+_- are allowed"),
    ("get_topic", {"topic": "orders\n"}, "the character U+000A at position 6 is not printable"),
    ("get_topic", {"topic": "t" * 256}, "expected str of length <= 255"),
    ("get_group", {"group": "/etc/passwd"}, "group is '/etc/passwd': letters, digits and %|_- are allowed"),
    ("get_message", {"id": "x", "form": "pdf"}, "form is 'pdf': best, hex, json, text are allowed"),
    ("get_message", {"id": "x", "body_start": -5}, "body_start is -5: expected int >= 0"),
    ("why_kept", {"physical_offset": 2**63}, "expected int <= 9223372036854775807"),
    ("store_status", {"x": {"y": 1}}, "'x' is no argument: this tool has no arguments"),
)


def test_arguments_that_are_refused(subtests: pytest.Subtests) -> None:
    """An error names the argument, its value and the allowed values, and is short for a value of any length."""
    for name, given, words in REFUSALS:
        with subtests.test(f"{name} {json.dumps(given)[:80]}"):
            with pytest.raises(Refused) as refused:
                checked(TOOLS[name].arguments, given)
            assert words in str(refused.value)
            assert len(str(refused.value)) < 500


def test_schemas_describe_every_argument() -> None:
    """Each argument has a description, texts have a length and numbers a range; unknown arguments are refused."""
    for name, tool in TOOLS.items():
        schema = schema_of(tool.arguments)
        assert (schema["type"], schema["additionalProperties"]) == ("object", False), name
        assert 40 < len(tool.description) < 500, name
        for argument, part in schema["properties"].items():
            assert part["description"], (name, argument)
            assert {"enum", "maxLength", "maximum"} & set(part), (name, argument)


def test_empty_and_null_arguments_have_their_defaults() -> None:
    """Models send null for arguments that they leave out."""
    wanted = checked(TOOLS["find_by_key"].arguments, {"key": "order-17", "topic": None, "limit": None})
    assert (wanted.topic, wanted.limit) == ("", 20)  # type: ignore[attr-defined]


def test_an_answer_is_cut_to_its_size() -> None:
    """The largest list is cut first, and the answer says how many of it are missing and how to ask for them."""
    answer = Answer(
        {"rows": [{"text": "\x07" * 2_000}] * 500, "few": ["x"]}, is_found=True, gaps=[Gap("groups", "away")] * 900
    )
    answer.rest_by("rows", "give name_part")
    text = answer.text()
    assert ANSWER_BYTES_MAX / 2 < size_of(text) <= ANSWER_BYTES_MAX
    found = json.loads(text)
    missing = 500 - len(found["rows"])
    assert found["left_off"] == [f"{missing} of 500 rows: give name_part"]
    assert (found["outcome"], found["few"]) == ("partial", ["x"])
    assert len(found["could_not_look"]) == 1


def test_many_gaps_are_bounded() -> None:
    """Gaps of many reasons are counted."""
    answer = Answer({}, is_found=False, gaps=[Gap(f"topic {at}", f"reason {at} {'x' * 900}") for at in range(900)])
    text = answer.text()
    assert size_of(text) < ANSWER_BYTES_MAX
    found = json.loads(text)
    assert found["outcome"] == "could_not_look"
    assert found["could_not_look"][-1]["subject"] == "880 more"


@pytest.mark.parametrize("text", ["\x07" * 24_000, "\U0001f600" * 24_000, '"\\' * 12_000, "\U000e0041" * 24_000])
def test_a_body_fits_whatever_its_characters(text: str) -> None:
    """Characters need up to 14 bytes in an answer; the begin of a body that fits is kept as it is."""
    part = fitting(text, 60_000)
    assert part
    assert text.startswith(part)
    answer = Answer({"body": {"text": Whole(part)}}, is_found=True, gaps=())
    assert size_of(answer.text()) < 70_000
    assert json.loads(answer.text())["body"]["text"] == part


def test_what_people_cannot_see_is_escaped() -> None:
    """Directions of writing, tags and control characters stand as escapes, and are the same when they are read."""
    hostile = 'a\u202eb\U000e0041"\\\x1b\n'
    assert json_of([hostile]) == '["a\\u202eb\\udb40\\udc41\\"\\\\\\u001b\\n"]'
    assert json.loads(json_of([hostile])) == [hostile]


async def test_calls_of_an_answer_share_their_time() -> None:
    """A question without an answer in time is a gap, and later questions of the same answer are not asked."""
    store = Store(Options(), {"delivery": ""}, Mask())
    store.answer_timeout_s = 0.05
    asking, forever = Asking(store), asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        await forever.wait()

    assert await asking.ask("a group", forever.wait()) is None
    assert await asking.ask_by("an id", forever.wait()) == (None, "")
    assert await asking.first("topics", items(), 10) == ([1], False)
    (gap,) = asking.gaps
    assert gap.subject == "a group, an id, topics"
    assert "longer than" in gap.reason
    await store.close()


def test_without_its_extra_the_command_says_which_to_install() -> None:
    """A line names the extra, and nothing is written to standard output."""
    with mock.patch.dict(sys.modules, {"mcp": None, "mcp.server": None, "mcp.server.context": None}):
        sys.modules.pop("services.console.mcp.server", None)
        result = run_here("mcp")
    assert (result.code, result.output) == (2, "")
    assert "pip install 'reput-server[mcp]'" in result.errors
