# SPDX-License-Identifier: Apache-2.0
"""Tag expressions: `*` or an empty text for every message, else tags separated by `||`. Spaces around tags are cut."""

from libs.formats.limits import PROPERTIES_SIZE_BYTES_MAX
from libs.requests.errors import BadArgument

EVERY_TAG = "*"
TAG_COUNT_MAX = 1_000
EXPRESSION_SIZE_BYTES_MAX = PROPERTIES_SIZE_BYTES_MAX
"""Each call reads every character of the expression."""
SEPARATOR = "||"


def parse_tags(text: str, *, field: str) -> tuple[str, ...]:
    """Return the tags of an expression, sorted and without duplicates. The result is empty if every message passes.

    Raises BadArgument for an expression without any tag, with too many, or too long.
    """
    size_bytes = len(text.encode())
    if size_bytes > EXPRESSION_SIZE_BYTES_MAX:
        reason = f"must be at most {EXPRESSION_SIZE_BYTES_MAX} bytes"
        raise BadArgument(reason, field=field, value=size_bytes, limit=EXPRESSION_SIZE_BYTES_MAX)
    if not text or text.strip() == EVERY_TAG:
        return ()
    tags = [tag for piece in text.split(SEPARATOR) if (tag := piece.strip())]
    if not tags:
        raise BadArgument("has no tag", field=field, value=text[:100])
    if len(tags) > TAG_COUNT_MAX:
        raise BadArgument(f"may have {TAG_COUNT_MAX} tags", field=field, value=len(tags), limit=TAG_COUNT_MAX)
    found = set(tags)
    return () if found == {EVERY_TAG} else tuple(sorted(found))


def text_of(tags: tuple[str, ...]) -> str:
    """Return the expression of tags that `parse_tags` returned: equal for equal sets."""
    return SEPARATOR.join(tags) or EVERY_TAG
