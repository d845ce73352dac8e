# SPDX-License-Identifier: Apache-2.0
"""The grammar of RocketMQ's SelectorParser, with NOT at the place where SQL has it.

The input is a text, the output is a tree or the place of the mistake. Keywords may be in upper or lower case. Names of
properties are case-sensitive. Comments are written as in SQL: `-- to the end of the line` and `/* ... */`. The parser
needs no recursion. Its time is proportional to the length of the text. The number of words that it reads is bounded, so
that no text delays other texts (docs/decisions/0033).
"""

import re
from typing import cast

from lark import Lark, Token, UnexpectedInput, UnexpectedToken

from libs.filters.nodes import VALUE_SHOWN, Node, Wrong
from libs.filters.syntax import Syntax

WORD_COUNT_MAX = 1_250
"""Words and signs of an expression. An IN of 500 texts has 1,000."""

GRAMMAR = r"""
start: either
?either: both (_OR both)*
?both: opposite (_AND opposite)*
?opposite: equality
    | NOT opposite                                                     -> negated
?equality: comparison
    | equality (EQUAL | UNEQUAL) comparison                            -> compared
    | equality _IS [NOT] NULL                                         -> is_null
?comparison: operand
    | comparison (LESS | AT_MOST | MORE | AT_LEAST) operand            -> compared
    | comparison [NOT] _BETWEEN operand _AND operand                   -> between
    | comparison [NOT] _IN _OPEN TEXT (_COMMA TEXT)* _CLOSE            -> within
    | comparison [NOT] (CONTAINS | STARTSWITH | ENDSWITH) TEXT         -> search
?operand: _OPEN either _CLOSE
    | number
    | TEXT                                                             -> text
    | NAME                                                             -> name
    | TRUE                                                             -> true
    | FALSE                                                            -> false
    | NULL                                                            -> null
number: (PLUS | MINUS)* (INTEGER | FLOAT)

_OR: "or"i
_AND: "and"i
NOT: "not"i
_IS: "is"i
NULL: "null"i
_BETWEEN: "between"i
_IN: "in"i
CONTAINS: "contains"i
STARTSWITH: "startswith"i
ENDSWITH: "endswith"i
TRUE: "true"i
FALSE: "false"i
EQUAL: "="
UNEQUAL: "<>"
LESS: "<"
AT_MOST: "<="
MORE: ">"
AT_LEAST: ">="
PLUS: "+"
MINUS: "-"
_OPEN: "("
_CLOSE: ")"
_COMMA: ","
NAME: /[a-z_$][a-z0-9_$]*/i
FLOAT.1: /\d++\.\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|\d++e[+-]?\d+/i
INTEGER: /0|[1-9]\d*l?/i
TEXT: /'[^']*+(?:''[^']*+)*+'/
SPACE: /[ \t\n\r\f]+/
LINE_COMMENT.1: /--[^\n\r]*/
BLOCK_COMMENT: /\/\*(?:[^*]|\*(?!\/))*+\*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_PARSER = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Syntax(), g_regex_flags=re.ASCII)

_HINTS = {
    "!": "not equal is written <>",
    "==": "equal is written =",
    '"': "texts stand in single quotes",
    "'": "the text that begins here does not end",
    "/": "a comment ends with */",
    "like": "instead of LIKE there are CONTAINS, STARTSWITH and ENDSWITH",
}
"""Maps spellings of other dialects, and incomplete text, to a hint for the caller."""


def parse(text: str) -> Node:
    """Return the tree of an expression. Raises Wrong."""
    parser = _PARSER.parse_interactive(text)
    token: Token | None = None
    try:
        for count, token in enumerate(parser.iter_parse(), 1):
            if count > WORD_COUNT_MAX:
                at = token.start_pos or 0
                reason = f"there are more than {WORD_COUNT_MAX} words and signs"
                raise Wrong(at + 1, reason, value=count, limit=WORD_COUNT_MAX)
        return cast("Node", parser.feed_eof(token))  # type: ignore[no-untyped-call]
    except UnexpectedInput as error:
        raise _wrong(error, text) from None


def _wrong(error: UnexpectedInput, text: str) -> Wrong:
    """Return the parser's error as Wrong: the place of the mistake and a hint."""
    place = error.pos_in_stream or 0
    found = text[place : place + 1]
    if isinstance(error, UnexpectedToken):
        if error.token.type == "$END":
            return Wrong(len(text) + 1, "the text ends too early", value=text[-VALUE_SHOWN:])
        found = str(error.token)[:VALUE_SHOWN]
        if found == "=" and text[place - 1] == "=":
            place, found = place - 1, "=="
    hint = _HINTS.get(found.lower())
    return Wrong(place + 1, f"{found!r} is not expected here" + (f": {hint}" if hint else ""), value=found)
