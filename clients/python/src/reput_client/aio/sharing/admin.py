# SPDX-License-Identifier: Apache-2.0
"""Groups whose members share messages, and the messages that they could not process."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from reput.delivery.v1 import dead_letter_service_pb2, group_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import PAGE_SIZE, Call, done
from reput_client.core.sharing.values import (
    DeadLetter,
    Replay,
    ShareGroup,
    ShareMove,
    SharePolicy,
    get_group,
    group_in,
    group_of,
    letter_of,
    move_of,
    policy_message,
    replay_of,
    selection_of,
)
from reput_client.core.types import Place, TimeLike, check_place, to_timestamp


class AsyncShareGroups:
    """Groups of share consumers: how they get their messages, and how far they are."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels

    def list(self) -> AsyncIterator[ShareGroup]:
        """Yield all groups by name, without their queues."""
        request = group_service_pb2.ListGroupsRequest(page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(group_of, page.groups))

    async def get(self, group: str) -> ShareGroup:
        """Return a group and how far it is. Raises NotFoundError."""
        return await self._channels.run(get_group(group))

    async def set(self, group: str, policy: SharePolicy) -> ShareGroup:
        """Give a group a policy, as a whole, and make the group if there is none."""
        request = group_service_pb2.SetGroupRequest(group=group, policy=policy_message(policy))
        return await self._channels.run(Call(request, group_in))

    async def reset(self, group: str, topic: str, to: Place, *, dry_run: bool = False) -> tuple[ShareMove, ...]:
        """Move a group in all queues of a topic, or say what that would do. What is in flight there is settled."""
        check_place(to)
        where: dict[str, Any] = {to: True} if isinstance(to, str) else {"time": to_timestamp(to)}
        request = group_service_pb2.ResetGroupRequest(group=group, topic=topic, dry_run=dry_run, **where)
        return await self._channels.run(Call(request, lambda answer: tuple(map(move_of, answer.moves))))

    async def delete(self, group: str) -> None:
        """Forget a group: policy, positions, what is in flight, and which of its dead letters were replayed."""
        await self._channels.run(Call(group_service_pb2.DeleteGroupRequest(group=group), done))


class AsyncDeadLetters:
    """Messages that groups could not process.

    Which of them are meant: those at `places`, queue ids and queue offsets among the dead letters, or all; for which
    `where` holds (docs/filters.md); and that died in [start, end).
    """

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels

    def list(
        self,
        group: str,
        *,
        places: Iterable[tuple[int, int]] = (),
        where: str = "",
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[DeadLetter]:
        """Yield a group's dead letters that were not replayed, by queue and offset. Fetches pages as needed."""
        request = dead_letter_service_pb2.ListDeadLettersRequest(
            group=group, selection=selection_of(places, where, start, end), page_size=page_size
        )
        return self._channels.pages(request, lambda page: map(letter_of, page.letters))

    def replay(
        self,
        group: str,
        *,
        places: Iterable[tuple[int, int]] = (),
        where: str = "",
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        per_second_max: int = 0,
        count_max: int = 0,
        dry_run: bool = False,
    ) -> AsyncIterator[Replay]:
        """Append dead letters to the topics that they came from, each once, and yield how far that is until it ends.

        0 is no limit. It goes on only while somebody takes what it yields. After an error it may be called again: what
        was replayed is not replayed again.
        """
        request = dead_letter_service_pb2.ReplayDeadLettersRequest(
            group=group,
            selection=selection_of(places, where, start, end),
            letters_per_second_max=per_second_max,
            letter_count_max=count_max,
            dry_run=dry_run,
        )
        return self._channels.stream(Call(request, replay_of))
