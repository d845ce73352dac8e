# SPDX-License-Identifier: Apache-2.0
"""TagFilter: selects messages by a tag expression, first by the hash in their unit, then by the text itself.

libs/filters/tag_expression.py defines the expressions. The unit's tags code is compared as 32 bits, as RocketMQ does.
Hashes collide, so for a unit that passes, the record's TAGS are compared as text. The same holds for a unit that has an
address in RocketMQ's extension of the queue instead of a hash: that file is not read here.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from libs.filters.tag_expression import parse_tags
from libs.formats.indexes.consume_queue import tags_code
from libs.formats.indexes.consume_queue_ext import ADDRESS_MAX


class TagFilter(Struct, frozen=True):
    """A parsed expression. Without tags every message passes."""

    tags: frozenset[bytes] = frozenset()
    codes: tuple[int, ...] = ()

    @property
    def passes_all(self) -> bool:
        """Whether every message passes."""
        return not self.tags

    def may_pass(self, tags_codes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which units may belong to messages that pass."""
        if self.passes_all:
            return np.ones(len(tags_codes), np.bool_)
        is_address = tags_codes <= ADDRESS_MAX
        return is_address | np.isin(tags_codes.astype(np.int32), np.array(self.codes, np.int32))

    def passes(self, tag: bytes | None) -> bool:
        """Return whether a message with this TAGS text passes."""
        return self.passes_all or tag in self.tags


def parse_tag_expression(text: str, *, field: str) -> TagFilter:
    """Parse an expression. Raises BadArgument for an expression without any tag, with too many tags, or too long."""
    tags = parse_tags(text, field=field)
    return TagFilter(frozenset(tag.encode() for tag in tags), tuple(sorted({tags_code(tag) for tag in tags})))
