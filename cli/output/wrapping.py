# SPDX-License-Identifier: Apache-2.0
"""Text within the columns of a terminal, on which a Chinese letter takes two. No I/O.

The standard library's textwrap counts letters instead of columns, and rich is slow to import.
"""

import re
import unicodedata
from collections.abc import Iterator

VALUE_WIDTH_MIN = 20
"""Least columns of a value beside its title, even on a narrow terminal: most numbers and times fit."""


_FIGURE = re.compile(r"(?<!\S)(\d[\d.,]*) (?=[^\W\d]|%)")
"""A number and the space in front of its unit, which stays beside it."""
_TIE = "\0"


def text_width(text: str) -> int:
    """Return the number of columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def wrapped(text: str, width: int, *, first: str = "", indent: str = "") -> Iterator[str]:
    """Yield a text in lines of at most `width` columns, with `first` before the first line and `indent` before others.

    Lines end between words, and within a word only if it is wider than a line. A number has its unit beside it.
    """
    lead, line, used = first, "", 0
    for tied in _FIGURE.sub(rf"\1{_TIE}", text).split(" "):
        word = tied.replace(_TIE, " ")
        room = width - text_width(lead)
        size = text_width(word)
        if line and used + 1 + size <= room:
            line, used = f"{line} {word}", used + 1 + size
            continue
        if line:
            yield lead + line
            lead = indent
        *full, line = folded(word, width - text_width(lead))
        for piece in full:
            yield lead + piece
            lead = indent
        used = text_width(line)
    yield (lead + line).rstrip()


def beside(title: str, title_width: int, value: str, width: int) -> Iterator[str]:
    """Yield the lines of a value beside its title, which has `title_width` columns, gap included."""
    lead = f"{title:<{title_width}}"
    room = max(width, title_width + VALUE_WIDTH_MIN)
    return wrapped(value, room, first=lead, indent=" " * title_width)


def folded(word: str, width: int) -> list[str]:
    """Return a word in pieces of at most `width` columns, at least a letter each: of "" a single piece."""
    if text_width(word) <= width:
        return [word]
    pieces, used = [""], 0
    for letter in word:
        size = text_width(letter)
        if pieces[-1] and used + size > width:
            pieces.append("")
            used = 0
        pieces[-1] += letter
        used += size
    return pieces
