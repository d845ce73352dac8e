# SPDX-License-Identifier: Apache-2.0
"""parse_where: the result of each form of an expression for a message, and each refusal with its place."""

import pytest

from libs.filters.building import CONDITION_COUNT_MAX as MANY
from libs.filters.grammar import WORD_COUNT_MAX
from libs.filters.nodes import DEPTH_MAX, IN_COUNT_MAX
from libs.filters.property_filter import EVERYTHING, EXPRESSION_SIZE_BYTES_MAX, parse_where
from libs.requests.errors import BadArgument


def say(expression: str, properties: dict[str, str]) -> bool | None:
    """The result of an expression for a message with these properties."""
    where = parse_where(expression, field="where")
    found = map(properties.get, map(bytes.decode, where.names))
    return where.test([None if value is None else value.encode() for value in found])


def refusal(expression: str, field: str = "where") -> BadArgument:
    """The error of a refused expression."""
    with pytest.raises(BadArgument) as caught:
        parse_where(expression, field=field)
    assert caught.value.field == field
    return caught.value


CONDITIONS: list[tuple[str, str, bool | None]] = [
    ("a = 'x'", "x", True),
    ("a = 'x'", "X", False),
    ("'x' = a", "x", True),
    ("a <> 'x'", "y", True),
    ("a <> 'x'", "x", False),
    ("a = 'it''s'", "it's", True),
    ("a = ''", "x", False),
    ("a = 'é😀'", "é😀", True),
    ("a = 'x' /* why */ -- because", "x", True),
    ("a\n=\t'x'", "x", True),
    # numbers
    ("a = 5", "5", True),
    ("a = 5", "5.0", True),
    ("a = 5", "+05", True),
    ("a = 5L", "5", True),
    ("a = 0", "0", True),
    ("a = .5", "0.5", True),
    ("a = 5.", "5", True),
    ("a = 1e3", "1000", True),
    ("a = -5", "-5", True),
    ("a = - + - 5", "5", True),
    ("a > 10", "9", False),
    ("a > 10", "11", True),
    ("a > 10", "3000000000", True),
    ("a >= 10", "10", True),
    ("a < 10", "1e1", False),
    ("a <= 10", "10.0", True),
    ("10 < a", "11", True),
    ("a = 9223372036854775807", "9223372036854775807", True),
    ("a = 9223372036854775807", "9223372036854775806", False),
    ("a < 0", "-" + "9" * 400, True),
    ("a > 0", "1e999", True),
    ("a BETWEEN 2 AND 10", "2", True),
    ("a BETWEEN 2 AND 10", "10", True),
    ("a BETWEEN 2 AND 10", "10.5", False),
    ("a < 1", ".5", True),
    ("a NOT BETWEEN 2 AND 10", "1", True),
    ("a NOT BETWEEN 2 AND 10", "2", False),
    ("a BETWEEN 2 AND 10 AND a <> 5", "5", False),
    # texts that are no numbers
    ("a = 5", "five", None),
    ("a <> 5", "five", None),
    ("a > 5", "", None),
    ("a > 5", " 6", None),
    ("a > 5", "6_0", None),
    ("a > 5", "0x10", None),
    ("a > 5", "NaN", None),
    ("a > 5", "Infinity", None),
    ("a > 5", "٦", None),
    ("NOT a > 5", "five", None),
    ("a BETWEEN 2 AND 10", "five", None),
    # truth
    ("a = TRUE", "TrUe", True),
    ("a = TRUE", "yes", False),
    ("a = FALSE", "no", True),
    ("FALSE = a", "no", True),
    ("a <> TRUE", "no", True),
    ("a", "true", True),
    ("a", "1", False),
    ("NOT a", "1", True),
    ("(a = 5) = TRUE", "5", True),
    ("(a = 5) <> (a = 6)", "5", True),
    # lists and searches
    ("a IN ('x', 'y')", "y", True),
    ("a IN ('x', 'y')", "z", False),
    ("a NOT IN ('x', 'y')", "z", True),
    ("a CONTAINS 'b'", "abc", True),
    ("a CONTAINS '%'", "abc", False),
    ("a NOT CONTAINS 'b'", "abc", False),
    ("a STARTSWITH 'ab'", "abc", True),
    ("a STARTSWITH 'bc'", "abc", False),
    ("a NOT STARTSWITH 'bc'", "abc", True),
    ("a ENDSWITH 'bc'", "abc", True),
    ("a NOT ENDSWITH 'bc'", "abc", False),
    ("a CONTAINS ''", "abc", False),
    ("a NOT CONTAINS ''", "abc", False),
    ("'abc' CONTAINS 'b'", "", True),
    # NULL
    ("a IS NULL", "x", False),
    ("a IS NOT NULL", "x", True),
    ("(a > 5) IS NULL", "five", True),
    ("NULL IS NULL", "", True),
    # precedence
    ("a = 'x' OR a = 'y' AND a = 'z'", "x", True),
    ("(a = 'x' OR a = 'y') AND a = 'z'", "x", False),
    ("NOT a = 'x' AND a = 'y'", "y", True),
    ("NOT (a = 'x' OR a = 'y')", "y", False),
    ("not a in ('x') aNd a <> 'z'", "y", True),
    ("NOT NOT a = 'x'", "x", True),
    ("((((a = 'x'))))", "x", True),
    ("TRUE", "", True),
    ("FALSE OR NULL", "", None),
]  # fmt: skip


def test_a_property_has_a_value(subtests: pytest.Subtests) -> None:
    """Each form of a condition, with the property that it names."""
    for expression, value, expected in CONDITIONS:
        with subtests.test(expression, value=value):
            assert say(expression, {"a": value}) is expected


WITHOUT_THE_PROPERTY: list[tuple[str, bool | None]] = [
    ("a = 'x'", None),
    ("a <> 'x'", None),
    ("'x' <> a", None),
    ("a = b", None),
    ("a > 5", None),
    ("NOT a > 5", None),
    ("a BETWEEN 1 AND 2", None),
    ("a NOT BETWEEN 1 AND 2", None),
    ("a IN ('x')", None),
    ("a NOT IN ('x')", None),
    ("a = TRUE", None),
    ("a", None),
    ("NOT a", None),
    ("a IS NULL", True),
    ("a IS NOT NULL", False),
    ("a CONTAINS 'x'", False),
    ("a NOT CONTAINS 'x'", False),
    ("NOT (a CONTAINS 'x')", True),
    ("a = 'x' AND FALSE", False),
    ("FALSE AND a = 'x'", False),
    ("a = 'x' AND TRUE", None),
    ("a = 'x' OR TRUE", True),
    ("TRUE OR a = 'x'", True),
    ("a = 'x' OR FALSE", None),
    ("NULL", None),
]


def test_a_property_is_missing(subtests: pytest.Subtests) -> None:
    """A comparison with a missing property is neither true nor false.

    AND and OR have a result if the other side alone decides it.
    """
    for expression, expected in WITHOUT_THE_PROPERTY:
        with subtests.test(expression):
            assert say(expression, {}) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("a = b", True), ("a <> b", False), ("a < c", True), ("c >= b", True), ("a < d", None), ("A = '10'", None)],
)
def test_properties_are_compared_with_each_other(expression: str, expected: bool | None) -> None:
    """Two properties are compared as texts by `=` and as numbers by an order.

    Names of properties are case-sensitive.
    """
    assert say(expression, {"a": "10", "b": "10", "c": "1e2", "d": "x"}) is expected


def test_only_what_is_true_passes() -> None:
    """Only messages with a true result pass, and false or unknown results do not; columns have a value a message."""
    where = parse_where("price > 10 AND region = 'eu'", field="where")
    assert where.names == (b"price", b"region")
    prices, regions = [b"11", b"11", None, b"x", b"10", b"12"], [b"eu", b"us", b"eu", b"eu", b"eu", b"eu"]
    assert where.passing([prices, regions], 6) == [0, 5]
    assert parse_where("NULL", field="where").passing([], 3) == []
    assert parse_where("TRUE", field="where").passing([], 3) == [0, 1, 2]


@pytest.mark.parametrize("expression", ["", "  \n"])
def test_without_an_expression_everything_passes(expression: str) -> None:
    """An empty expression passes all messages, as no expression does."""
    assert parse_where(expression, field="where") is EVERYTHING
    assert EVERYTHING.passes_all


MISTAKES: list[tuple[str, int, str]] = [
    ("a >", 4, "ends too early"),
    ("(a = 1", 7, "ends too early"),
    ("a = 1)", 6, "')' is not expected"),
    ("a == 1", 3, "equal is written ="),
    ("a != 1", 3, "not equal is written <>"),
    ('a = "x"', 5, "single quotes"),
    ("a = 'x", 5, "does not end"),
    ("a = 1 /* x", 7, "a comment ends with */"),
    ("a LIKE 'x%'", 3, "CONTAINS, STARTSWITH and ENDSWITH"),
    ("a IN ()", 7, "')' is not expected"),
    ("a IN (1)", 7, "'1' is not expected"),
    ("a IN 'x'", 6, "is not expected"),
    ("5 IN ('x')", 1, "IN is for a property"),
    ("a CONTAINS b", 12, "'b' is not expected"),
    ("5 CONTAINS 'x'", 1, "CONTAINS is for"),
    ("a > 'x'", 5, "a text is not compared with a number"),
    ("'5' = 5", 1, "a text is not compared with a number"),
    ("a > TRUE", 5, "only numbers and properties"),
    ("(a = 1) > 2", 2, "only numbers and properties"),
    ("5 = TRUE", 5, "only numbers and properties"),
    ("'true' = TRUE", 1, "only TRUE, FALSE"),
    ("a = NULL", 5, "IS NULL"),
    ("a BETWEEN NULL AND 5", 11, "IS NULL"),
    ("a BETWEEN 10 AND 9", 18, "9 is less than 10"),
    ("5", 1, "a condition is expected"),
    ("a = 1 AND 'x'", 11, "a condition is expected"),
    ("-a > 5", 2, "'a' is not expected"),
    ("a-b = 'x'", 2, "'-' is not expected"),
    ("07 = a", 2, "'7' is not expected"),
    ("é = 1", 1, "'é' is not expected"),
    ("a = 1\0", 6, "is not expected"),
    ("in = 1", 1, "'in' is not expected"),
    ("a b", 3, "'b' is not expected"),
]


def test_a_mistake_is_told_with_its_place(subtests: pytest.Subtests) -> None:
    """The error of a mistake has the character, from 1 on, and the mistake.

    If another language writes the condition so, the error has the right form.
    """
    for expression, at, words in MISTAKES:
        with subtests.test(expression):
            error = refusal(expression, "filter.where")
            assert str(error).startswith(f"filter.where: at character {at}: ")
            assert words in str(error)
            assert error.value is not None


@pytest.mark.parametrize(
    ("expression", "at", "value", "limit"),
    [
        ("a = 9223372036854775808", 5, "9223372036854775808", 2**63 - 1),
        ("a = " + "9" * 5_000, 5, "9" * 40, 2**63 - 1),
        ("a = 1.8e308", 5, "1.8e308", 1.7976931348623157e308),
        ("NOT " * DEPTH_MAX + "a = 1", 5, DEPTH_MAX + 1, DEPTH_MAX),
        ("a OR " * MANY + "a", 1 + 5 * MANY, MANY + 1, MANY),
        ("a IN (" + "'x'," * IN_COUNT_MAX + "'x')", 7 + 4 * IN_COUNT_MAX, IN_COUNT_MAX + 1, IN_COUNT_MAX),
        ("a = " + "- " * WORD_COUNT_MAX + "1", 2 * WORD_COUNT_MAX + 1, WORD_COUNT_MAX + 1, WORD_COUNT_MAX),
    ],
)  # fmt: skip
def test_limits(expression: str, at: int, value: object, limit: object) -> None:
    """An expression over a limit is refused with the place of the excess, its value and the limit."""
    error = refusal(expression)
    assert f"at character {at}:" in str(error)
    assert (error.value, error.limit) == (value, limit)


def test_an_expression_is_as_long_as_properties_may_be() -> None:
    """An expression of 32,767 bytes is read, and a longer expression is refused before it is read."""
    longest = "a = '" + "x" * (EXPRESSION_SIZE_BYTES_MAX - 6) + "'"
    assert say(longest, {"a": longest[5:-1]}) is True
    error = refusal(longest + " ")
    assert (error.value, error.limit) == (EXPRESSION_SIZE_BYTES_MAX + 1, EXPRESSION_SIZE_BYTES_MAX)


def test_what_is_allowed_is_allowed() -> None:
    """The largest depth, count of conditions and IN work are accepted, and tested on a message."""
    assert say("NOT " * (DEPTH_MAX - 1) + "a = 1", {"a": "1"}) is False
    assert say("a = 1 AND " * (MANY - 1) + "a = 1", {"a": "1"}) is True
    assert say("a IN (" + "'x'," * (IN_COUNT_MAX - 1) + "'y')", {"a": "y"}) is True
    assert say("(" * 600 + "a = 1" + ")" * 600, {"a": "1"}) is True


def test_an_expression_is_compiled_once() -> None:
    """A second request for the same expression returns the same compiled tests."""
    assert parse_where("once = 1", field="where") is parse_where("once = 1", field="filter.where")
