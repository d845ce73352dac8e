# SPDX-License-Identifier: Apache-2.0
"""QueryService over the engine's queries. Answers are assembled as bytes."""

from reput.indexer.v1 import query_service_pb2 as messages

from libs.filters.property_filter import parse_where
from libs.formats import fields
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.machine.loop import in_steps
from libs.requests import arguments
from libs.requests.checks import size_of_page
from libs.requests.errors import BadArgument
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.many_keys import KEY_COUNT_OF_A_STEP, KeyMatches, KeysQuery
from services.indexer.engine.answer.query import KeyQuery, Page, TimeQuery
from services.indexer.errors import NotARecord
from services.indexer.rpc import requests
from services.indexer.rpc.responses import KEY_MATCHES, QUERY, messages_field, with_messages

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 64, 1_024
KEY_COUNT_MAX = 1_024
TEXT_SIZE_BYTES_MAX = 600


class QueryServicer:
    """Serves reput.indexer.v1.QueryService."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def QueryByKey(self, request: messages.QueryByKeyRequest, _: object) -> bytes:
        """Return a page of messages with a key, newest first."""
        start_ms, end_ms = requests.time_range(request)
        topic = self._answers.served(arguments.topic(request.topic))
        where = parse_where(request.where, field="where")
        query = KeyQuery(topic, requests.key(request.key), start_ms, end_ms, where=where)
        page_size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        indexed = self._answers.indexes.reached.indexed_physical_offset
        page = await self._answers.queries.by_key(query, page_size=page_size, page_token=request.page_token)
        await self._check_end(topic, page)
        return _page(page, indexed, wants_records=request.wants_records)

    async def QueryByKeys(self, request: messages.QueryByKeysRequest, _: object) -> bytes:
        """Return the first messages of each of as many of the keys as fit."""
        start_ms, end_ms = requests.time_range(request)
        topic = self._answers.served(arguments.topic(request.topic))
        if not 1 <= len(request.keys) <= KEY_COUNT_MAX:
            reason = f"must have 1 to {KEY_COUNT_MAX} keys"
            raise BadArgument(reason, field="keys", value=len(request.keys), limit=KEY_COUNT_MAX)
        keys: list[str] = []
        async for step in in_steps(request.keys, count=KEY_COUNT_OF_A_STEP):
            keys += [requests.key(key, f"keys[{number}]") for number, key in enumerate(step, len(keys))]
        query = KeysQuery(topic, tuple(keys), start_ms, end_ms, where=parse_where(request.where, field="where"))
        page_size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        indexed = self._answers.indexes.reached.indexed_physical_offset
        found = await self._answers.many_keys.by_keys(query, page_size=page_size)
        if not any(matches.is_something for matches in found):
            await self._answers.check_known(topic)
        parts = [int_field(fields.QUERY_BY_KEYS_RESPONSE_INDEXED_PHYSICAL_OFFSET, indexed)]
        async for part in in_steps(found, count=KEY_COUNT_OF_A_STEP):
            parts += [_key_matches(matches, wants_records=request.wants_records) for matches in part]
        return b"".join(parts)

    async def QueryByTime(self, request: messages.QueryByTimeRequest, _: object) -> bytes:
        """Return a page of messages by store time."""
        start_ms, end_ms = requests.time_range(request)
        queue_id = arguments.queue_id(request.queue_id) if request.HasField("queue_id") else None
        topic = self._answers.served(arguments.topic(request.topic))
        query = TimeQuery(topic, queue_id, start_ms, end_ms, parse_where(request.where, field="where"))
        page_size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        indexed = self._answers.indexes.reached.indexed_physical_offset
        page = await self._answers.queries.by_time(query, page_size=page_size, page_token=request.page_token)
        await self._check_end(topic, page)
        return _page(page, indexed, wants_records=request.wants_records)

    async def QueryById(self, request: messages.QueryByIdRequest, _: object) -> bytes:
        """Return the message with an id."""
        if request.topic:
            topic = self._answers.served(arguments.topic(request.topic))
            unique_id = requests.key(request.message_id, "message_id")
            found = await self._answers.queries.by_unique_id(topic, unique_id)
        else:
            found = await self._answers.queries.by_offset_id(request.message_id)
        return messages_field(found, fields.QUERY_BY_ID_RESPONSE_MESSAGE)

    async def _check_end(self, topic: str, page: Page) -> None:
        """Raise TopicNotFound if a last page is empty and the topic does not exist (any more).

        Messages of a deleted topic are still found by key.
        """
        if not page.next_page_token and not len(page.found.sizes):
            await self._answers.check_known(topic)


def _key_matches(matches: KeyMatches, *, wants_records: bool) -> bytes:
    """Make a field of QueryByKeysResponse."""
    head = b""
    if matches.error is not None:
        reason = b"NOT_A_RECORD" if isinstance(matches.error, NotARecord) else b"RECORD_DAMAGED"
        text = str(matches.error).encode()[:TEXT_SIZE_BYTES_MAX]
        head = length_delimited(fields.KEY_MATCHES_ERROR_REASON, reason)
        head += length_delimited(fields.KEY_MATCHES_ERROR_TEXT, text.decode(errors="ignore").encode())
    elif matches.next_page_token:
        head = length_delimited(fields.KEY_MATCHES_NEXT_PAGE_TOKEN, matches.next_page_token.encode())
    made = with_messages(head, matches.found, KEY_MATCHES, wants_records=wants_records)
    return length_delimited(fields.QUERY_BY_KEYS_RESPONSE_MATCHES, made)


def _page(page: Page, indexed_physical_offset: int, *, wants_records: bool) -> bytes:
    """Make a QueryByKeyResponse. A QueryByTimeResponse has the same fields."""
    token = page.next_page_token.encode()
    head = b"".join(
        (
            length_delimited(fields.QUERY_BY_KEY_RESPONSE_NEXT_PAGE_TOKEN, token) if token else b"",
            int_field(fields.QUERY_BY_KEY_RESPONSE_INDEXED_PHYSICAL_OFFSET, indexed_physical_offset),
        )
    )
    return with_messages(head, page.found, QUERY, wants_records=wants_records)
