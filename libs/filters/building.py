# SPDX-License-Identifier: Apache-2.0
"""Building: from the tree of an expression to a test of one message's values.

A test returns True, False, or None for "unknown", as in SQL. A comparison with a missing value is unknown. NOT unknown
is unknown. AND and OR are known if one side alone decides. Values are bytes as they are stored (UTF-8): texts are
equal, contain, begin and end with each other exactly if their bytes do.
Not handled: the maximum depth of a tree (syntax), the source of the values.
"""

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from libs.filters.nodes import Comparison, IsNull, Junction, Literal, Name, Node, Not, Search, Within, Wrong

Row: TypeAlias = Sequence[bytes | None]
"""One message's values of the properties that the expression names, in their order. None: the property is missing."""

Test: TypeAlias = Callable[[Row], bool | None]
"""Returns whether a condition holds, or None if that is unknown."""

Value: TypeAlias = Callable[[Row], Any]
"""Returns one side of a comparison: a number, a text, a truth value, or None."""

CONDITION_COUNT_MAX = 256
"""A condition may have to search through all properties of a message, 32,767 bytes."""

INTEGER_SIZE_MAX = 20
"""A sign and 19 digits, as numbers in an expression have at most. Longer texts are floating-point numbers."""

_NUMBER = re.compile(rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")

_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SEARCHES: dict[str, Callable[[bytes, bytes], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": bytes.startswith,
    "ENDSWITH": bytes.endswith,
}


class Builder:
    """The builder of an expression's tests. It also collects the properties that the expression names.

    Methods raise Wrong.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        """Maps each property's name to its place in a row."""
        self.condition_count = 0

    def test(self, node: Node) -> Test:
        """Build a condition. A property alone is compared with TRUE."""
        match node:
            case Junction(is_and=is_and, operands=operands):
                return _joined([self.test(operand) for operand in operands], decides=not is_and)
            case Not(operand=operand):
                return _opposite(self.test(operand))
        self._count(node)
        match node:
            case Comparison():
                return self._comparison(node)
            case IsNull(operand=operand):
                value = self._value(operand)
                return lambda row: value(row) is None
            case Within(operand=operand, texts=texts):
                return _within(self._property(operand, "IN"), frozenset(text.encode() for text in texts))
            case Search(how=how, operand=operand, text=text, is_negated=is_negated):
                return _search(self._text(operand, how), _SEARCHES[how], text.encode(), is_negated=is_negated)
            case Name() | Literal(value=bool() | None):
                return self._truth(node)
        raise Wrong(node.at, "a condition is expected here, not a text or a number")

    def _count(self, node: Node) -> None:
        self.condition_count += 1
        if self.condition_count > CONDITION_COUNT_MAX:
            reason = f"there are more than {CONDITION_COUNT_MAX} conditions"
            raise Wrong(node.at, reason, value=self.condition_count, limit=CONDITION_COUNT_MAX)

    def _comparison(self, node: Comparison) -> Test:
        """Build a comparison: of numbers if a side is a number, of truth values if a side is such, else of texts."""
        sides = node.left, node.right
        is_order = node.sign not in ("=", "<>")
        for side in sides:
            if isinstance(side, Literal) and side.value is None:
                raise Wrong(side.at, "nothing is compared with NULL: write IS NULL or IS NOT NULL")
        if is_order or any(map(_is_number, sides)):
            left, right = map(self._number, sides)
        elif any(map(_is_truth, sides)):
            left, right = map(self._truth, sides)
        else:
            left, right = (self._text(side, node.sign) for side in sides)
        return _compared(left, _SIGNS[node.sign], right)

    def _value(self, node: Node) -> Value:
        """Build the value that IS NULL tests."""
        match node:
            case Name(name=name):
                return self._stored(name)
            case Literal(value=value):
                return lambda _: value
        return self.test(node)

    def _number(self, node: Node) -> Value:
        match node:
            case Name(name=name):
                value = self._stored(name)
                return lambda row: number_of(value(row))
            case Literal(value=str(text)):
                raise Wrong(node.at, f"a text is not compared with a number or put in order: {text[:40]!r}")
            case Literal(value=int() | float() as number) if not isinstance(number, bool):
                return lambda _: number
        raise Wrong(node.at, "only numbers and properties are compared with numbers, and put in order")

    def _truth(self, node: Node) -> Value:
        match node:
            case Name(name=name):
                value = self._stored(name)
                return lambda row: truth_of(value(row))
            case Literal(value=str() | int() | float() as value) if not isinstance(value, bool):
                raise Wrong(node.at, "only TRUE, FALSE, properties and conditions are compared with these")
            case Literal(value=value):
                return lambda _: value
        return self.test(node)

    def _text(self, node: Node, what: str) -> Value:
        match node:
            case Name(name=name):
                return self._stored(name)
            case Literal(value=str(text)):
                stored = text.encode()
                return lambda _: stored
        raise Wrong(node.at, f"{what} is for a property or a text here")

    def _property(self, node: Node, what: str) -> Value:
        if not isinstance(node, Name):
            raise Wrong(node.at, f"{what} is for a property")
        return self._stored(node.name)

    def _stored(self, name: str) -> Value:
        return operator.itemgetter(self.names.setdefault(name, len(self.names)))


def number_of(text: bytes | None) -> int | float | None:
    """Return the number that a text represents: digits with an optional sign, point and exponent, and nothing else.

    Whole numbers of up to 20 characters are exact. Other numbers become the nearest floating-point number. The result
    is None for any other text.
    """
    if text is None:
        return None
    is_short = len(text) <= INTEGER_SIZE_MAX
    if is_short and text.isdigit():  # most numbers, in a fifth of the time
        return int(text)
    if _NUMBER.fullmatch(text) is None:
        return None
    return int(text) if is_short and text[:1] in b"+-" and text[1:].isdigit() else float(text)


def truth_of(text: bytes | None) -> bool | None:
    """Return whether a text is `true`, in any case. Other texts are false, as in RocketMQ. None stays None."""
    return None if text is None else len(text) == 4 and text.lower() == b"true"


def _is_number(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _is_truth(node: Node) -> bool:
    return isinstance(node.value, bool) if isinstance(node, Literal) else not isinstance(node, Name)


def _compared(left: Value, holds: Callable[[Any, Any], bool], right: Value) -> Test:
    def test(row: Row) -> bool | None:
        one = left(row)
        if one is None:
            return None
        other = right(row)
        return None if other is None else holds(one, other)

    return test


def _within(value: Value, texts: frozenset[bytes]) -> Test:
    def test(row: Row) -> bool | None:
        text = value(row)
        return None if text is None else text in texts

    return test


def _search(value: Value, finds: Callable[[bytes, bytes], bool], text: bytes, *, is_negated: bool) -> Test:
    """Build a search. If the value is missing or the text is empty, it and its NOT form are false, as in RocketMQ."""

    def test(row: Row) -> bool:
        found = value(row)
        return bool(text) and found is not None and finds(found, text) is not is_negated

    return test


def _opposite(test: Test) -> Test:
    def opposite(row: Row) -> bool | None:
        found = test(row)
        return None if found is None else not found

    return opposite


def _joined(tests: list[Test], *, decides: bool) -> Test:
    """Build a condition that is known once a part has the deciding value: False for AND, True for OR."""

    def joined(row: Row) -> bool | None:
        is_known = True
        for test in tests:
            found = test(row)
            if found is decides:
                return decides
            is_known = is_known and found is not None
        return not decides if is_known else None

    return joined
