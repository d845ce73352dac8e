# SPDX-License-Identifier: Apache-2.0
"""PropertyFilter: selects messages by an expression over the values of their properties.

Callers: any thread; a filter has no state. Parsed expressions are cached: a repeated expression is parsed once.
The dialect: docs/filters.md.
"""

import functools
from collections.abc import Sequence

from msgspec import Struct

from libs.filters.building import Builder, Test
from libs.filters.nodes import VALUE_SHOWN, Wrong
from libs.formats.limits import PROPERTIES_SIZE_BYTES_MAX
from libs.requests.errors import BadArgument

EXPRESSION_SIZE_BYTES_MAX = PROPERTIES_SIZE_BYTES_MAX

KEPT_COUNT = 64
"""Number of cached expressions. An expression of 256 conditions takes 0.2 MB."""


class PropertyFilter(Struct, frozen=True, eq=False):
    """A checked expression. Without a text, every message passes."""

    text: str = ""
    names: tuple[bytes, ...] = ()
    """The properties that the expression names."""
    condition_count: int = 0
    """The cost of testing a message, in conditions."""
    test: Test = lambda _: True

    @property
    def passes_all(self) -> bool:
        """Whether every message passes."""
        return not self.text

    def passing(self, columns: Sequence[Sequence[bytes | None]], count: int) -> list[int]:
        """Return the indexes of the messages that pass, of `count` messages. Each name has a column of values."""
        test = self.test
        rows = zip(*columns, strict=True) if columns else [()] * count
        return [number for number, row in enumerate(rows) if test(row) is True]


EVERYTHING = PropertyFilter()


def parse_where(text: str, *, field: str) -> PropertyFilter:
    """Return the filter of an expression.

    An empty expression, or an expression of only spaces, lets every message pass. Raises BadArgument for an expression
    that is too long, wrong, or too much work for each message. The error's text names the place of the mistake.
    """
    size_bytes = len(text.encode())
    if size_bytes > EXPRESSION_SIZE_BYTES_MAX:
        raise BadArgument("is too long", field=field, value=size_bytes, limit=EXPRESSION_SIZE_BYTES_MAX)
    if not text.strip():
        return EVERYTHING
    try:
        return _filter(text)
    except Wrong as wrong:
        value = text[wrong.at - 1 :][:VALUE_SHOWN] if wrong.value is None else wrong.value
        reason = f"at character {wrong.at}: {wrong.reason}"
        raise BadArgument(reason, field=field, value=value, limit=wrong.limit) from None


@functools.lru_cache(KEPT_COUNT)
def _filter(text: str) -> PropertyFilter:
    from libs.filters.grammar import parse

    builder = Builder()
    test = builder.test(parse(text))
    return PropertyFilter(text, tuple(name.encode() for name in builder.names), builder.condition_count, test)
