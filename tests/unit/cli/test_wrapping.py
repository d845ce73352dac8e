# SPDX-License-Identifier: Apache-2.0
"""Text within the columns of a terminal."""

import pytest

from cli.output.wrapping import beside, folded, text_width, wrapped


@pytest.mark.parametrize("width", [4, 7, 20, 80])
@pytest.mark.parametrize(
    "text", ["", "a", "many short words in a row", "x" * 50, "\u8ba2\u5355\u5df2\u521b\u5efa" * 9, "e\u0301" * 30]
)
def test_nothing_is_lost_or_too_wide(text: str, width: int) -> None:
    """No line is wider than the width; a Chinese letter has two columns, and an accent none."""
    lines = list(wrapped(text, width))
    assert max(map(text_width, lines)) <= width
    assert " ".join(lines).replace(" ", "") == text.replace(" ", "")


def test_lines_end_between_words() -> None:
    """Only a word that is wider than a line is broken, and it begins on a line of its own."""
    assert list(wrapped("to be or not abcdefghijklm that is", 10, first="- ", indent="  ")) == [
        "- to be or",
        "  not",
        "  abcdefgh",
        "  ijklm",
        "  that is",
    ]


def test_a_unit_stays_beside_its_number() -> None:
    """A number and its unit are on the same line."""
    assert list(wrapped("10 s, 30 s, 2 min 5 s of 1,024 MiB, 7 % 5 6", 13)) == [
        "10 s, 30 s,",
        "2 min 5 s of",
        "1,024 MiB,",
        "7 % 5 6",
    ]


def test_beside_a_title() -> None:
    """A narrow terminal leaves room enough for a number."""
    assert list(beside("offset", 8, str(2**63 - 1), 10)) == [f"offset  {2**63 - 1}"]
    assert list(beside("error", 7, "", 80)) == ["error"]


def test_a_word_in_pieces() -> None:
    """A letter that is wider than the line has a line of its own."""
    assert folded("\u8ba2\u5355", 1) == ["\u8ba2", "\u5355"]
    assert folded("", 5) == [""]
