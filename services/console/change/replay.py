# SPDX-License-Identifier: Apache-2.0
"""The replay of dead letters: selected letters or all that match a condition, at a rate, each once."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from msgspec.structs import replace
from reput_client import Replay, ReputError
from reput_client.aio import AsyncClient

from libs.figures import many, verb
from services.console.ask.letters import WHERE_CHARACTERS_MAX
from services.console.ask.store import Asking
from services.console.change.prepared import Apply, Arguments, Prepared, Result, number_of, with_refusal
from services.console.pages.change import Input, Preview, address, digest
from services.console.pages.letters import LETTERS_SHOWN_MAX
from services.console.pages.mask import Mask
from services.console.pages.page import command

RATE, RATE_MAX = 100, 1_000_000
REPLAY_S = 10
LETTERS_MAX = 1_000
"""Letters that a confirmation replays: at most so many, and as many as the rate takes within `REPLAY_S`."""
COUNT_TIMEOUT_S = 10
PLACE = re.compile(r"(\d{1,9})/(\d{1,18})", re.ASCII)
PART = (
    f"A confirmation replays what the rate takes in {REPLAY_S} s, and {LETTERS_MAX:,} letters at most. For the others "
    "confirm again, or use the command."
)
COLUMNS = ("Topic", "Letters", "Stay", "Reason")


class Selected(NamedTuple):
    """The letters that are selected, and the speed. Letters that died at `end_ms` or later are left out."""

    group: str
    places: tuple[str, ...]
    where: str
    rate: int
    end_ms: int

    @property
    def count_max(self) -> int:
        """Letters of a confirmation."""
        return min(LETTERS_MAX, self.rate * REPLAY_S)

    def arguments(self) -> dict[str, Any]:
        """Return the selection as arguments of the client."""
        places = [tuple(map(int, place.split("/"))) for place in self.places]
        return {"places": places, "where": self.where, "end": self.end_ms, "per_second_max": self.rate}


async def prepare_replay(asking: Asking, group: str, arguments: Arguments) -> Prepared:
    """Prepare a replay."""
    page = Preview(
        commands=(command("dlq", "replay", group, "--dry-run"),),
        title=f"Replay dead letters of {group}",
        name=group,
        back=address("dead-letters", group),
        inputs=(
            Input("where", "Where", arguments.get("where", ""), hint="price > 10 AND region = 'eu'"),
            Input("rate", "Letters in a second", arguments.get("rate", str(RATE))),
            Input(
                "place",
                "Only these letters",
                arguments.get("place", ""),
                hint="all, or QUEUE/OFFSET with commas between",
            ),
        ),
    )
    return await with_refusal(asking, page, _prepared(asking, page, group, arguments))


async def _prepared(asking: Asking, page: Preview, group: str, arguments: Arguments) -> Prepared:
    """Raises ValueError and ReputError."""
    if not asking.store.has_delivery:
        raise ValueError("this store has no Delivery, which has the dead letters")
    selected = _selected(group, arguments, asking.store.clock.now_ms(), asking.store.mask)
    try:
        async with asyncio.timeout(COUNT_TIMEOUT_S):
            last = await _last(asking.client.dead_letters.replay(group, **selected.arguments(), dry_run=True))
    except TimeoutError:
        raise ValueError(f"the letters could not be counted within {COUNT_TIMEOUT_S} s: mark some of them") from None
    if last is None or not last.topics:
        raise ValueError(f"group {group} has no such dead letter")
    page = _preview(page, selected, last)
    return Prepared(page, _apply(selected) if last.replayed_count else None)


def _selected(group: str, arguments: Arguments, now_ms: int, mask: Mask) -> Selected:
    """Raises ValueError, also for a condition whose counts would tell masked values."""
    places = tuple(place.strip() for place in arguments.get("place", "").split(",") if place.strip())
    for place in places:
        if not PLACE.fullmatch(place):
            raise ValueError(f"place is {place[:40]!r}: a queue and an offset are expected, as in 0/17")
    if len(places) > LETTERS_SHOWN_MAX:
        raise ValueError(f"place has {len(places)} letters: {LETTERS_SHOWN_MAX} are allowed")
    where = arguments.get("where", "").strip()
    if refusal := mask.refusal(where=where):
        raise ValueError(refusal)
    if len(where) > WHERE_CHARACTERS_MAX:
        raise ValueError(f"where has {len(where)} characters: {WHERE_CHARACTERS_MAX} are allowed")
    rate = number_of(arguments, "rate", low=1, high=RATE_MAX) or RATE
    end_ms = number_of(arguments, "end", low=0, high=now_ms)
    return Selected(group, places, where, rate, now_ms if end_ms is None else end_ms)


def _preview(page: Preview, selected: Selected, last: Replay) -> Preview:
    group, count = selected.group, last.replayed_count
    selection = (*selected.places, *(("--where", selected.where) if selected.where else ()))
    replay = ("dlq", "replay", group, *selection, "--rate", str(selected.rate))
    letters = many(count, "letter")
    is_part = count > selected.count_max
    return replace(
        page,
        commands=(command(*replay, "--dry-run"), command(*replay)),
        summary=(
            f"{f'The first {selected.count_max:,} of ' if is_part else ''}{letters} of group {group} "
            f"{verb(count, 'goes', 'go')} back to the topic of each, at most {selected.rate:,} in a second."
        ),
        warnings=(PART,) if is_part else (),
        columns=COLUMNS,
        rows=tuple(
            (one.topic or "not known", one.replayed_count, one.refused_count, one.refusal) for one in last.topics
        ),
        verb="Replay the letters",
        carried=(
            ("place", ",".join(selected.places)), ("where", selected.where), ("rate", str(selected.rate)),
            ("end", str(selected.end_ms)),
        ),
        state=digest((one.topic, one.replayed_count, one.refused_count) for one in last.topics),
        stale=f"the dead letters of group {group} are not the same: some were replayed, or their topics changed",
    )  # fmt: skip


def _apply(selected: Selected) -> Apply:
    async def apply(client: AsyncClient) -> Result:
        last: Replay | None = None
        try:
            replay = client.dead_letters.replay(selected.group, **selected.arguments(), count_max=selected.count_max)
            async for step in replay:
                last = step
        except ReputError as error:
            if last is None or not last.replayed_count:
                raise
            return Result(f"At least {many(last.replayed_count, 'letter')} went back. Then: {error}", "unknown")
        assert last is not None
        return Result(_told(last))

    return apply


def _told(last: Replay) -> str:
    refused, stay = last.refused_count, ""
    if refused:
        stay = f" {many(refused, 'letter')} {verb(refused, 'stays', 'stay')}: the topic accepts no messages."
    return f"{many(last.replayed_count, 'letter')} went back.{stay}"


async def _last(progress: AsyncIterator[Replay]) -> Replay | None:
    last = None
    async for step in progress:
        last = step
    return last
