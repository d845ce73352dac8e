# SPDX-License-Identifier: Apache-2.0
"""Messages by key: a page of each topic, the newest first, and the token with which a topic goes on."""

from collections.abc import Sequence
from typing import NamedTuple

from reput.indexer.v1 import query_service_pb2
from reput_client import Message
from reput_client.core.call import Call
from reput_client.core.records import are_wanted, messages_in
from reput_client.core.types import to_timestamp

from services.console.ask.store import Asking, each
from services.console.pages.mask import KEYS
from services.console.pages.rows import MessageRow, row_of

MESSAGES_OF_A_TOPIC_MAX = 20


class KeyRows(NamedTuple):
    """The messages of a topic with a key, the newest first."""

    rows: list[MessageRow]
    next_token: str = ""
    """Where the topic goes on; empty at its end."""


class _Page(NamedTuple):
    messages: list[Message]
    next_token: str


async def by_key(
    asking: Asking,
    key: str,
    topics: Sequence[str],
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    count: int = MESSAGES_OF_A_TOPIC_MAX,
    token: str = "",
) -> list[KeyRows]:
    """Look a key up in each topic. Returns its newest messages, from `token` on. Masked keys find only ids.

    The messages were stored in [start, end). A token is of a single topic, and of the same key, start and end.
    """
    mask = asking.store.mask
    if refusal := mask.refusal(key=key):
        asking.left_out("messages by key", refusal)
        return []

    async def look_up(topic: str) -> KeyRows:
        request = query_service_pb2.QueryByKeyRequest(
            topic=topic,
            key=key,
            start_time=to_timestamp(start_ms),
            end_time=to_timestamp(end_ms),
            page_token=token,
            wants_records=are_wanted(),
        )
        return await _rows(asking, request, count)

    found = [answer for _, answer in await each(topics, look_up)]
    return [_with_id(one, key) for one in found] if mask.covers(KEYS) else found


async def _rows(asking: Asking, request: query_service_pb2.QueryByKeyRequest, count: int) -> KeyRows:
    """Return the next messages. A page may be short and have a next page; a token of a full page may have no more."""
    rows: list[MessageRow] = []
    while True:
        request.page_size = max(count - len(rows), 1)
        page = await asking.ask(f"the key in {request.topic}", asking.store.run(Call(request, _page)))
        if page is None:
            return KeyRows(rows, request.page_token if rows else "")
        if len(rows) == count and page.messages:
            return KeyRows(rows, request.page_token)
        rows += [row_of(message, asking.store.mask) for message in page.messages]
        if not page.next_token:
            return KeyRows(rows)
        request.page_token = page.next_token


def _page(answer: object) -> _Page:
    return _Page(messages_in(answer), answer.next_page_token)  # type: ignore[attr-defined]


def _with_id(found: KeyRows, key: str) -> KeyRows:
    """Return the messages with a text as unique id. Messages with it as a key are left out: it may be masked."""
    return KeyRows([row for row in found.rows if row.unique_id.upper() == key.upper()])
