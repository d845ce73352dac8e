# SPDX-License-Identifier: Apache-2.0
"""Prose: counts the vague words in the sentences of the repository.

A vague word stands for a noun that the reader has to find: `the one that leads` is the leader.
"""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.sources import ROOT, is_ours, nodes_of, python_files, text_of

VAGUE = re.compile(r"\b(who|whom|whoever|what|whatever|those|ones?|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z']+")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
DIRECTIVES = ("SPDX", "noqa", "type:", "fmt:", "pragma")


class Count(NamedTuple):
    """Words of some texts."""

    word_count: int = 0
    vague_count: int = 0

    @property
    def per_hundred(self) -> float:
        """Vague words of a hundred words."""
        return 100 * self.vague_count / max(self.word_count, 1)

    def with_text(self, text: str) -> "Count":
        """Return the count after adding a text. Code in backticks counts as a plain word."""
        text = CODE.sub("X", text)
        return Count(self.word_count + len(WORD.findall(text)), self.vague_count + len(VAGUE.findall(text)))


@functools.cache
def count_of(room: str) -> Count:
    """Count the words of a room: a folder, whose Python, protos and pages count, or a page."""
    count, path = Count(), ROOT / room
    pages = [path] if path.is_file() else [page for page in sorted(path.rglob("*.md")) if is_ours(page)]
    for python in python_files(room):
        if not python.stem.endswith(("_pb2", "_pb2_grpc")):
            for text in texts_of(python):
                count = count.with_text(text)
    for page in pages:
        count = count.with_text(page.read_text())
    for proto in sorted(path.rglob("*.proto")):
        count = count.with_text("\n".join(re.findall(r"//(.*)", proto.read_text())))
    return count


def texts_of(path: Path) -> Iterator[str]:
    """Yield docstrings, the strings below attributes, and comments of a Python file."""
    for node in nodes_of(path):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text
    for token in tokenize.generate_tokens(io.StringIO(text_of(path)).readline):
        if token.type == tokenize.COMMENT and not any(word in token.string for word in DIRECTIVES):
            yield token.string
