# SPDX-License-Identifier: Apache-2.0
"""Groups whose members share messages, and the messages that they could not process."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from reput.delivery.v1 import dead_letter_service_pb2, group_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import PAGE_SIZE, Call, done
from reput_client.core.sharing.values import (
    DeadLetter,
    MessageState,
    Replay,
    ShareGroup,
    ShareMove,
    SharePolicy,
    get_group,
    get_message_states,
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
    """Groups of share consumers: their policies and positions."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels

    def list(self) -> AsyncIterator[ShareGroup]:
        """Yield all groups by name, without their queues."""
        request = group_service_pb2.ListGroupsRequest(page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(group_of, page.groups))

    async def get(self, group: str) -> ShareGroup:
        """Return a group, its policy and its positions. Raises NotFoundError."""
        return await self._channels.run(get_group(group))

    async def message_states(self, group: str, places: Iterable[tuple[str, int, int]]) -> tuple[MessageState, ...]:
        """Return the states of up to 100 messages at a group, in order, by topic, queue and queue offset.

        Raises NotFoundError for a group that shares no messages.
        """
        return await self._channels.run(get_message_states(group, places))

    async def set(self, group: str, policy: SharePolicy) -> ShareGroup:
        """Replace the whole policy of a group, and create the group if it does not exist."""
        request = group_service_pb2.SetGroupRequest(group=group, policy=policy_message(policy))
        return await self._channels.run(Call(request, group_in))

    async def reset(self, group: str, topic: str, to: Place, *, dry_run: bool = False) -> tuple[ShareMove, ...]:
        """Move a group in all queues of a topic. Messages in flight are settled. A dry run only returns the moves."""
        check_place(to)
        where: dict[str, Any] = {to: True} if isinstance(to, str) else {"time": to_timestamp(to)}
        request = group_service_pb2.ResetGroupRequest(group=group, topic=topic, dry_run=dry_run, **where)
        return await self._channels.run(Call(request, lambda answer: tuple(map(move_of, answer.moves))))

    async def delete(self, group: str) -> None:
        """Delete a group: policy, positions, deliveries in flight, and the record of replayed dead letters."""
        await self._channels.run(Call(group_service_pb2.DeleteGroupRequest(group=group), done))


class AsyncDeadLetters:
    """Dead letters: messages that groups could not process.

    The arguments select letters: at `places` (queue ids and queue offsets among the dead letters; empty means all), for
    which `where` holds (docs/filters.md), and that died in [start, end).
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
        """Append dead letters to their original topics, each a single time, and yield the progress until the end.

        A limit of 0 means no limit. The replay continues only while the caller iterates. After an error it may be
        called again: replayed letters are not replayed again.
        """
        request = dead_letter_service_pb2.ReplayDeadLettersRequest(
            group=group,
            selection=selection_of(places, where, start, end),
            letters_per_second_max=per_second_max,
            letter_count_max=count_max,
            dry_run=dry_run,
        )
        return self._channels.stream(Call(request, replay_of))
