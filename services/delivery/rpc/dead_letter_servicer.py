# SPDX-License-Identifier: Apache-2.0
"""DeadLetterServicer: the gRPC service DeadLetterService of this process."""

import contextlib
from collections.abc import AsyncGenerator

from reput.delivery.v1 import dead_letter_service_pb2 as messages

from libs.filters.property_filter import parse_where
from libs.formats.limits import INT32_MAX, INT64_MAX
from libs.requests import arguments
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_token, encode_token
from services.delivery.engine.dead_letters.dead_letters import Replay
from services.delivery.engine.dead_letters.selection import Selection
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.rpc.log import letters as notes
from services.delivery.rpc.log.stored import StoredContent
from services.delivery.rpc.names import group_name

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 32, 1_000
PLACE_COUNT_MAX = 1_000
LIST = "dead letters"


class DeadLetterServicer:
    """Lists and replays dead letters."""

    def __init__(self, owner: JournalOwner) -> None:
        self._owner = owner

    async def ListDeadLetters(
        self, request: messages.ListDeadLettersRequest, _: object
    ) -> messages.ListDeadLettersResponse:
        """Return a page of letters. The token is where the next page begins."""
        group, selection = group_name(request.group), _selection(request.selection)
        count = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        arguments_of_list = (group, selection)
        after = decode_token(LIST, arguments_of_list, request.page_token, tuple[int, int]) or (0, 0)
        letters = (await self._owner.engine()).dead_letters
        found, position = await letters.page(group, selection, after, count)
        token = "" if position is None else encode_token(LIST, arguments_of_list, position)
        return messages.ListDeadLettersResponse(letters=[_letter(one.message) for one in found], next_page_token=token)

    async def ReplayDeadLetters(
        self, request: messages.ReplayDeadLettersRequest, _: object
    ) -> AsyncGenerator[messages.ReplayDeadLettersResponse, None]:
        """Replay letters, and send the progress."""
        letters = (await self._owner.engine()).dead_letters
        replays = letters.replay(
            group_name(request.group),
            _selection(request.selection),
            per_second_max=check_range(request.letters_per_second_max, "letters_per_second_max", most=INT32_MAX),
            count_max=check_range(request.letter_count_max, "letter_count_max"),
            is_dry_run=request.dry_run,
        )
        async with contextlib.aclosing(replays):
            async for replay in replays:
                yield _progress(replay)


def _selection(selection: messages.DeadLetterSelection) -> Selection:
    count = len(selection.places)
    if count > PLACE_COUNT_MAX:
        reason = f"must be at most {PLACE_COUNT_MAX}"
        raise BadArgument(reason, field="selection.places", value=count, limit=PLACE_COUNT_MAX)
    places = tuple(
        (
            arguments.queue_id(place.queue_id, f"selection.places[{index}].queue_id"),
            check_range(place.queue_offset, f"selection.places[{index}].queue_offset"),
        )
        for index, place in enumerate(selection.places)
    )
    return Selection(
        places=places,
        where=parse_where(selection.where, field="selection.where").text,
        start_ms=arguments.time_ms(selection, "start_time", "selection."),
        end_ms=arguments.time_ms(selection, "end_time", "selection."),
    )


def _letter(content: StoredContent) -> messages.DeadLetter:
    """Return a letter with its notes. Any client may have written these properties, so bad values are left out."""
    stored = content.message
    properties = stored.properties
    queue_id, queue_offset, attempts = (
        _number(properties.get(name, ""), most)
        for name, most in (
            (notes.DLQ_ORIGIN_QUEUE_ID, INT32_MAX),
            (notes.DLQ_ORIGIN_QUEUE_OFFSET, INT64_MAX),
            (notes.DLQ_ATTEMPTS, INT32_MAX),
        )
    )
    return messages.DeadLetter(
        message=stored,
        origin_topic=properties.get(notes.DLQ_ORIGIN_TOPIC, ""),
        origin_queue_id=queue_id,
        origin_queue_offset=queue_offset,
        origin_message_id=properties.get(notes.DLQ_ORIGIN_MESSAGE_ID, ""),
        attempt_count=attempts or 0,
    )


def _number(text: str, most: int) -> int | None:
    """Return the number that a property contains, None if it is no number from 0 to `most`."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_number and int(text) <= most else None


def _progress(replay: Replay) -> messages.ReplayDeadLettersResponse:
    topics = [
        messages.ReplayedTopic(
            topic=topic,
            replayed_count=one.replayed_count,
            refused_count=one.refused_count,
            refusal=one.refusal,
        )
        for topic, one in sorted(replay.topics.items())
    ]
    return messages.ReplayDeadLettersResponse(
        passed_count=replay.passed_count,
        total_count=replay.total_count,
        topics=topics,
        done_before_count=replay.done_before_count,
        is_done=replay.is_done,
    )
