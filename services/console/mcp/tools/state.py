# SPDX-License-Identifier: Apache-2.0
"""Tools about the store: the state of its services, and why segments of the log are kept."""

from collections.abc import Sequence

from services.console.ask.operate import retention, service_states
from services.console.ask.store import Asking, Store
from services.console.mcp.answers import Answer
from services.console.mcp.arguments import Arguments, PageNumber, PhysicalOffset
from services.console.pages.operate.retention import ROWS_OF_A_PAGE, SegmentRow, Trial

SEGMENTS_MAX = 5_000


class Nothing(Arguments, frozen=True):
    """No arguments."""


class Segments(Arguments, frozen=True):
    """The arguments of why_kept."""

    physical_offset: PhysicalOffset = -1
    page: PageNumber = 1


async def store_status(store: Store, _: Nothing) -> Answer:
    """Return the state of each service, and actions against its troubles."""
    page = await service_states.service_states(store)
    hidden = ("gaps", "is_found")
    values = {name: getattr(page, name) for name in page.__struct_fields__ if name not in hidden}
    return Answer(values, is_found=any(row.health != "away" for row in page.services), gaps=page.gaps)


async def why_kept(store: Store, wanted: Segments) -> Answer:
    """Return segments of the log, each with the reason why it is kept or goes."""
    asking, number = Asking(store), wanted.page
    if wanted.physical_offset >= 0:
        segments, _ = await asking.first("segments", asking.client.admin.segments(), SEGMENTS_MAX)
        before = sum(one.base_physical_offset <= wanted.physical_offset for one in segments)
        number = max(before - 1, 0) // ROWS_OF_A_PAGE + 1
    page = await retention.retention(store, Trial(), number)
    rows: Sequence[SegmentRow] = page.segments
    if wanted.physical_offset >= 0:
        rows = [row for row in rows if 0 <= wanted.physical_offset - row.base_physical_offset < row.size_bytes]
    answer = Answer(
        {
            "segments": rows,
            "segment_count": page.segment_count,
            "page": page.number,
            "page_count": page.page_count,
            "policy": page.policy,
            "topics_with_rules": page.topics,
            "forecast": page.forecast,
            "latest_runs": page.runs,
            "commands": page.commands,
        },
        is_found=bool(rows),
        gaps=(*asking.gaps, *page.gaps),
    )
    if wanted.physical_offset < 0 and page.number < page.page_count:
        answer.left_off(f"younger segments: page={page.number + 1} of {page.page_count}")
    if page.topic_count > len(page.topics):
        answer.left_off(f"{page.topic_count - len(page.topics)} topics with rules: `{page.commands[0]}` prints all")
    return answer
