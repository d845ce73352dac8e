# SPDX-License-Identifier: Apache-2.0
"""The states of a message at the groups: the Indexer and Delivery have positions, Delivery also exact states."""

import asyncio
from collections.abc import Sequence

from reput_client import MessageState

from libs.formats.state.system_topics import DEAD_LETTER_PREFIX
from services.console.ask.keys import by_key
from services.console.ask.operate.callers import connections_of
from services.console.ask.store import Asking, each
from services.console.pages.groups import GroupFacts, Reason
from services.console.pages.message import states_of
from services.console.pages.operate.callers import ConnectionRow
from services.console.pages.page import Gap
from services.console.pages.rows import MessageRow
from services.console.pages.states import Blocker, GroupState, exact_state

BLOCKERS_MAX = 10
"""Messages that hold a group up whose states its page asks for."""
GROUPS_SEARCHED_MAX = 50
"""Groups among whose dead letters a settled message is searched for."""


async def states_at(asking: Asking, row: MessageRow, facts: Sequence[GroupFacts]) -> tuple[GroupState, ...]:
    """Return the state of a message at each group with a position in its queue."""
    found = states_of(row.topic, row.queue_id, row.queue_offset, facts)
    place = (row.topic, row.queue_id, row.queue_offset)

    async def told(group: str) -> MessageState | None:
        what = f"the exact state at group {group}"
        states = await asking.ask(what, asking.client.share_groups.message_states(group, [place]))
        return states[0] if states else None

    states = dict(await each([one.group for one in found if one.is_shared], told))
    settled = [group for group, state in states.items() if state is not None and state.stage == "settled"]
    numbers = {state.connection_number for state in states.values() if state is not None and state.stage == "in_flight"}
    letters, (receivers, gaps) = await asyncio.gather(
        each(settled[:GROUPS_SEARCHED_MAX], lambda group: _letter(asking, group, row)),
        _receivers(asking, numbers - {0}),
    )
    ids = dict(letters)
    reason = gaps[0].reason if gaps else ""
    return tuple(
        one if (state := states.get(one.group)) is None else exact_state(
            one, state, receivers.get((one.group, state.connection_number)), reason, ids.get(one.group, "")
        )
        for one in found
    )  # fmt: skip


async def blockers_of(asking: Asking, group: GroupFacts, reasons: Sequence[Reason]) -> tuple[Blocker, ...]:
    """Return the states of the messages that the reasons of a group name, with their receivers."""
    if group.share is None:
        return ()
    named = ((one.topic, one.queue_id, one.queue_offset) for one in reasons)
    places = [(topic, queue, at) for topic, queue, at in dict.fromkeys(named) if queue is not None and at is not None]
    places = places[:BLOCKERS_MAX]
    if not places:
        return ()
    call = asking.client.share_groups.message_states(group.name, places)
    states = await asking.ask(f"who has the messages that hold {group.name} up", call) or ()
    receivers, gaps = await _receivers(asking, {one.connection_number for one in states} - {0})
    reason = gaps[0].reason if gaps else ""
    known = GroupState(group.name, True, "open", 0, attempts_max=group.share.policy.attempts_max)
    return tuple(
        Blocker(*place, exact_state(known, one, receivers.get((group.name, one.connection_number)), reason, ""))
        for place, one in zip(places, states, strict=False)
    )


async def _letter(asking: Asking, group: str, row: MessageRow) -> str:
    """Return the id of the dead letter of a message, "" if it has none."""
    if not row.unique_id or row.topic == DEAD_LETTER_PREFIX + group:
        return ""
    (found,) = await by_key(asking, row.unique_id, [DEAD_LETTER_PREFIX + group], count=1) or (None,)
    return found.rows[0].id if found is not None and found.rows else ""


async def _receivers(asking: Asking, numbers: set[int]) -> tuple[dict[tuple[str, int], ConnectionRow], tuple[Gap, ...]]:
    """Return Delivery's connections with these numbers by their groups, and why they are not known."""
    if not numbers:
        return {}, ()
    own = Asking(asking.store)
    rows = await connections_of(own, "delivery")
    return {(group, row.number): row for row in rows for group in row.groups if row.number in numbers}, own.gaps
