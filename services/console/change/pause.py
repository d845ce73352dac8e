# SPDX-License-Identifier: Apache-2.0
"""The pause of a group that shares messages, and its end."""

from dataclasses import astuple, replace

from msgspec.structs import replace as replaced
from reput_client import ShareGroup
from reput_client.aio import AsyncClient

from libs.figures import many
from services.console.ask.groups import group_fact
from services.console.ask.store import Asking
from services.console.change.prepared import Apply, Arguments, Prepared, Result
from services.console.pages.change import Preview, address, digest
from services.console.pages.page import command


async def prepare_pause(asking: Asking, group: str, _arguments: Arguments) -> Prepared:
    """Prepare the pause of a group."""
    return await _prepared(asking, group, is_paused=True)


async def prepare_resume(asking: Asking, group: str, _arguments: Arguments) -> Prepared:
    """Prepare the end of a group's pause."""
    return await _prepared(asking, group, is_paused=False)


async def _prepared(asking: Asking, group: str, *, is_paused: bool) -> Prepared:
    facts = await group_fact(asking, group)
    share = facts.share if facts is not None else None
    verb = "pause" if is_paused else "resume"
    page = Preview(
        commands=(command("groups", verb, group),),
        gaps=asking.gaps,
        is_found=facts is not None,
        title=f"{verb.capitalize()} group {group}",
        name=group,
        back=address("groups", group),
    )
    if facts is None:
        return Prepared(page)
    if share is None:
        return Prepared(replaced(page, refusal=f"group {group} keeps offsets: only its own consumers can pause"))
    if share.policy.is_paused == is_paused:
        return Prepared(replaced(page, refusal=f"group {group} is {'paused already' if is_paused else 'not paused'}"))
    in_flight = sum(queue.in_flight_count for queue in share.queues)
    waits = f"{many(in_flight, 'message')} in flight can still be settled." if in_flight else ""
    page = replaced(
        page,
        summary=f"Group {group} gets no messages until it is resumed."
        if is_paused
        else f"Group {group} gets messages.",
        warnings=(waits,) if is_paused and waits else (),
        verb=f"{verb.capitalize()} the group",
        state=digest(map(str, astuple(share.policy))),
        stale=f"the policy of group {group} was changed meanwhile",
    )
    return Prepared(page, _apply(share, is_paused=is_paused))


def _apply(share: ShareGroup, *, is_paused: bool) -> Apply:
    async def apply(client: AsyncClient) -> Result:
        await client.share_groups.set(share.name, replace(share.policy, is_paused=is_paused))
        return Result(f"Group {share.name} {'is paused' if is_paused else 'gets messages again'}.")

    return apply
