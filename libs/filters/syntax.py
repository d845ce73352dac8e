# SPDX-License-Identifier: Apache-2.0
"""Syntax, which the parser calls for each rule that it has read. Every method raises Wrong."""

from lark import Token, Transformer, v_args

from libs.filters.nodes import (
    DEPTH_MAX,
    IN_COUNT_MAX,
    Comparison,
    IsNull,
    Junction,
    Literal,
    Name,
    Node,
    Not,
    Search,
    Within,
    Wrong,
)

INTEGER_MAX, FLOAT_MAX = 2**63 - 1, 1.7976931348623157e308
INTEGER_DIGITS_MAX = len(str(INTEGER_MAX))


@v_args(inline=True)
class Syntax(Transformer[Token, Node]):
    """The transformer that makes nodes from parsed rules. It has no state, so all parsers share it."""

    def start(self, node: Node) -> Node:
        """Return the whole expression."""
        return node

    def either(self, *operands: Node) -> Node:
        """Read a OR b OR c."""
        return Junction(operands[0].at, False, operands, _below(*operands))

    def both(self, *operands: Node) -> Node:
        """Read a AND b AND c."""
        return Junction(operands[0].at, True, operands, _below(*operands))

    def negated(self, word: Token, operand: Node) -> Node:
        """Read NOT a."""
        return _negated(operand, _place(word))

    def compared(self, left: Node, sign: Token, right: Node) -> Node:
        """Read a = b and the other signs."""
        return Comparison(left.at, str(sign), left, right, _below(left, right))

    def is_null(self, operand: Node, word: Token | None, _: Token) -> Node:
        """Read a IS NULL, a IS NOT NULL."""
        node = IsNull(operand.at, operand, _below(operand))
        return _negated(node, operand.at) if word else node

    def between(self, operand: Node, word: Token | None, low: Node, high: Node) -> Node:
        """Read a BETWEEN b AND c, a NOT BETWEEN b AND c: two comparisons, as in RocketMQ."""
        ends = low.value if isinstance(low, Literal) else None, high.value if isinstance(high, Literal) else None
        if isinstance(ends[0], int | float) and isinstance(ends[1], int | float) and ends[0] > ends[1]:
            reason = f"{ends[1]} is less than {ends[0]}, where the range begins"
            raise Wrong(high.at, reason, value=ends[1], limit=ends[0])
        signs = ("<", ">") if word else (">=", "<=")
        sides = tuple(
            Comparison(operand.at, sign, operand, end, _below(operand, end))
            for sign, end in zip(signs, (low, high), strict=True)
        )
        return Junction(operand.at, not word, sides, _below(*sides))

    def within(self, operand: Node, word: Token | None, *texts: Token) -> Node:
        """Read a IN ('b', 'c'), a NOT IN ('b', 'c')."""
        if len(texts) > IN_COUNT_MAX:
            place = _place(texts[IN_COUNT_MAX])
            raise Wrong(place, f"IN has more than {IN_COUNT_MAX} texts", value=len(texts), limit=IN_COUNT_MAX)
        node = Within(operand.at, operand, tuple(map(_unquoted, texts)), _below(operand))
        return _negated(node, operand.at) if word else node

    def search(self, operand: Node, word: Token | None, how: Token, text: Token) -> Node:
        """Read a CONTAINS 'b', a NOT CONTAINS 'b', and so on."""
        return Search(operand.at, how.upper(), operand, _unquoted(text), bool(word), _below(operand))

    def number(self, *tokens: Token) -> Node:
        """Read a number behind any signs."""
        *signs, digits = tokens
        at, text = _place(tokens[0]), digits.rstrip("lL")
        value: int | float
        if digits.type == "FLOAT":
            value = float(text)
            limit: int | float = FLOAT_MAX
        else:
            value = int(text) if len(text) <= INTEGER_DIGITS_MAX else INTEGER_MAX + 1
            limit = INTEGER_MAX
        if value > limit:
            raise Wrong(at, f"the number is above {limit}", value=text[:40], limit=limit)
        is_negative = sum(sign == "-" for sign in signs) % 2
        return Literal(at, -value if is_negative else value)

    def text(self, token: Token) -> Node:
        """Read 'a text'."""
        return Literal(_place(token), _unquoted(token))

    def name(self, token: Token) -> Node:
        """Read the name of a property."""
        return Name(_place(token), str(token))

    def true(self, token: Token) -> Node:
        """Read TRUE."""
        return Literal(_place(token), True)

    def false(self, token: Token) -> Node:
        """Read FALSE."""
        return Literal(_place(token), False)

    def null(self, token: Token) -> Node:
        """Read NULL."""
        return Literal(_place(token), None)


def _place(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos + 1


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _negated(operand: Node, at: int) -> Node:
    return Not(at, operand, _below(operand))


def _below(*nodes: Node) -> int:
    """Return the depth of the parent of these nodes. Raises Wrong if that is too deep."""
    depth = 1 + max(node.depth for node in nodes)
    if depth > DEPTH_MAX:
        reason = f"conditions lie more than {DEPTH_MAX} deep in each other"
        raise Wrong(nodes[0].at, reason, value=depth, limit=DEPTH_MAX)
    return depth
