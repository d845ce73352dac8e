# SPDX-License-Identifier: Apache-2.0
"""The tree of an expression, and the error of an expression that is wrong.

Kinds of values are not checked here: `a < 'x'` is a tree, too. Each node has the position where it begins, in
characters from 1 on, and the depth of the tree below it.
"""

from typing import TypeAlias

from msgspec import Struct

DEPTH_MAX = 32
"""Depth of nested conditions. Each level is a nested call when a message is tested."""

IN_COUNT_MAX = 500
"""Texts of an IN."""

VALUE_SHOWN = 40
"""Letters of an expression that an error shows."""


class Wrong(Exception):
    """The mistake in an expression and its place: the character, from 1 on. `limit` is the nearest allowed value."""

    def __init__(self, at: int, reason: str, *, value: object = None, limit: object = None) -> None:
        super().__init__(reason)
        self.at, self.reason, self.value, self.limit = at, reason, value, limit


class Name(Struct, frozen=True):
    """A property."""

    at: int
    name: str
    depth: int = 0


class Literal(Struct, frozen=True):
    """A text, a number, TRUE, FALSE, or NULL as None."""

    at: int
    value: str | int | float | bool | None
    depth: int = 0


class Comparison(Struct, frozen=True):
    """Two sides of =, <>, <, <=, > or >=."""

    at: int
    sign: str
    left: "Node"
    right: "Node"
    depth: int


class IsNull(Struct, frozen=True):
    """Whether there is no value."""

    at: int
    operand: "Node"
    depth: int


class Within(Struct, frozen=True):
    """IN: whether a property is equal to a text of a list."""

    at: int
    operand: "Node"
    texts: tuple[str, ...]
    depth: int


class Search(Struct, frozen=True):
    """CONTAINS, STARTSWITH or ENDSWITH, or the NOT form, which is not simply the opposite (see building)."""

    at: int
    how: str
    operand: "Node"
    text: str
    is_negated: bool
    depth: int


class Not(Struct, frozen=True):
    """The opposite of a condition."""

    at: int
    operand: "Node"
    depth: int


class Junction(Struct, frozen=True):
    """Conditions that must all hold (AND), or of which at least a single condition must hold (OR)."""

    at: int
    is_and: bool
    operands: tuple["Node", ...]
    depth: int


Node: TypeAlias = Name | Literal | Comparison | IsNull | Within | Search | Not | Junction
