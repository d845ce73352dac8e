# SPDX-License-Identifier: Apache-2.0
"""Random expressions.

Valid expressions have the result of a plain reading of SQL, and invalid expressions only raise BadArgument.
"""

from typing import Any, TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from libs.filters.property_filter import parse_where
from libs.requests.errors import BadArgument

Said: TypeAlias = bool | None
Properties: TypeAlias = dict[str, str]

WORDS = st.sampled_from(
    [
        *("a", "b", "TAGS", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH", "TRUE", "FALSE", "(", ")", ",", "+", "-", "'x'", "''", "'''", "5"),
        *("5.5", ".5", "1e9", "1e999", "9223372036854775808", "0", "07", "5L", "--", "/*", "*/", '"', ";", "é", "\0"),
        *("ſ", "$", "_"),
    ]
)
TEXTS = ("", "x", "xy", "5", "-5.5", "true", "é", "'")
NAMES = ("a", "b")


@given(st.one_of(st.text(), st.lists(WORDS, max_size=30).map(" ".join), st.lists(WORDS, max_size=30).map("".join)))
@example("(" * 20_000)
@example("NOT " * 8_000)
@example("'" * 32_767)
@example("/*" * 16_000)
@example("9" * 32_767)
@example("a=" + "9" * 16_000 + "e" + "9" * 16_000)
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text raises BadArgument or is parsed, and a parsed condition can be tested on any message."""
    try:
        where = parse_where(text, field="where")
    except BadArgument:
        return
    for value in (None, b"", b"5", b"\xff\x00", b"x" * 100):
        assert where.test([value] * len(where.names)) in (True, False, None)


@given(st.one_of(st.none(), st.binary(max_size=40), st.text("0123456789.eE+- ", max_size=400).map(str.encode)))
def test_any_stored_value_is_compared(value: bytes | None) -> None:
    """A condition on bytes that are not text, or on numbers of any size, is true, false or unknown."""
    for expression in ("a > 5", "a = 5.5", "a = TRUE", "a = 'x'", "a CONTAINS 'é'", "a IN ('x')", "a < b"):
        where = parse_where(expression, field="where")
        assert where.test([value] * len(where.names)) in (True, False, None)


def quoted(text: str) -> str:
    """Return a text as a literal."""
    return "'" + text.replace("'", "''") + "'"


@st.composite
def conditions(draw: Any, depth: int = 3) -> tuple[str, Any]:
    """An expression, and a function of a message's properties with the same result."""
    kind = draw(st.sampled_from(["equal", "in", "null", "and", "or", "not"] if depth else ["equal", "in", "null"]))
    name, text = draw(st.sampled_from(NAMES)), draw(st.sampled_from(TEXTS))
    if kind == "equal":
        return f"{name} = {quoted(text)}", lambda row: row[name] == text if name in row else None
    if kind == "in":
        return f"{name} NOT IN ({quoted(text)}, 'x')", lambda row: row[name] not in (text, "x") if name in row else None
    if kind == "null":
        return f"{name} IS NULL", lambda row: name not in row
    left, says_left = draw(conditions(depth - 1))
    if kind == "not":
        return f"NOT ({left})", lambda row: None if (said := says_left(row)) is None else not said
    right, says_right = draw(conditions(depth - 1))
    decides = kind == "or"

    def joined(row: Properties) -> Said:
        both = says_left(row), says_right(row)
        return decides if decides in both else None if None in both else not decides

    return f"({left}) {kind} ({right})", joined


@given(conditions(), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS)))
def test_conditions_say_what_sql_says(condition: tuple[str, Any], row: Properties) -> None:
    """AND, OR and NOT of three values have the result of SQL, in any nesting."""
    expression, says = condition
    where = parse_where(expression, field="where")
    values = [row[name].encode() if name in row else None for name in map(bytes.decode, where.names)]
    assert where.test(values) == says(row)
