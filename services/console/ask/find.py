# SPDX-License-Identifier: Apache-2.0
"""What Find asks: names, the id, the key in all topics, and the minute of a time in all topics."""

from collections.abc import AsyncIterator

from reput_client import Message

from services.console.ask.groups import group_names
from services.console.ask.store import Asking, Store, each
from services.console.pages.find import MINUTE_MS, FindPage, Search, Wanted, matching, page_of, wanted
from services.console.pages.rows import MessageRow, row_of

TOPICS_SEARCHED_MAX = 1_000
"""Topics in which a key is looked up: a call for each, some tenths of a millisecond of the Indexer."""
TOPICS_LOOKED_AT_MAX = 100
"""Topics whose messages of a minute are read."""
TOPICS_LISTED_MAX = 20_000
MESSAGES_OF_A_TOPIC_MAX = 20
MESSAGES_SHOWN_MAX = 100


async def find(store: Store, text: str, topic: str, zone: str) -> FindPage:
    """Return the page of a search."""
    asking = Asking(store)
    meant = wanted(text, zone, store.now)
    if not meant.text:
        return page_of(meant, topic, Search(), ())
    listed, _ = await asking.first("topics", asking.client.topics.list(), TOPICS_LISTED_MAX)
    names = [one.name for one in listed]
    groups = matching(await group_names(asking), meant.name) if meant.name else []
    searched = [topic] if topic else names[:TOPICS_SEARCHED_MAX]
    messages = await _by_id(asking, meant) if meant.offset_id else []
    is_cut = False
    if meant.key:
        found, is_cut = await _by_key(asking, meant, searched)
        messages += found
        if len(names) > len(searched) and not topic:
            asking.left_out(
                f"the key in {len(names) - len(searched)} topics", "too many topics for one search: give the topic"
            )
    near, near_cut = await _near(asking, meant, searched) if meant.moment_ms is not None else ([], False)
    rows = [row_of(message, hides_bodies=store.hides_bodies) for message in messages]
    search = Search(
        topics=matching(names, meant.name) if meant.name else [],
        groups=groups,
        messages=rows[:MESSAGES_SHOWN_MAX],
        near=near[:MESSAGES_SHOWN_MAX],
        looked_topic_count=len(searched),
        is_cut=is_cut or near_cut or max(len(rows), len(near)) > MESSAGES_SHOWN_MAX,
    )
    return page_of(meant, topic, search, asking.gaps)


async def _by_id(asking: Asking, meant: Wanted) -> list[Message]:
    message = await asking.ask("the id", asking.client.query.by_id(meant.offset_id))
    return [message] if message is not None else []


async def _by_key(asking: Asking, meant: Wanted, topics: list[str]) -> tuple[list[Message], bool]:
    """Look the key up in each topic. Returns messages, and whether a topic has more."""

    async def look_up(topic: str) -> tuple[list[Message], bool]:
        messages = asking.client.query.by_key(topic, meant.key, page_size=MESSAGES_OF_A_TOPIC_MAX)
        return await asking.first(f"the key in {topic}", messages, MESSAGES_OF_A_TOPIC_MAX)

    return _gathered([answer for _, answer in await each(topics, look_up)])


async def _near(asking: Asking, meant: Wanted, topics: list[str]) -> tuple[list[MessageRow], bool]:
    """Read the first messages of the minute in each topic."""
    assert meant.moment_ms is not None
    start_ms = meant.moment_ms

    async def look(topic: str) -> tuple[list[Message], bool]:
        end_ms = start_ms + MINUTE_MS
        messages: AsyncIterator[Message] = asking.client.query.by_time(
            topic, start=start_ms, end=end_ms, page_size=MESSAGES_OF_A_TOPIC_MAX
        )
        return await asking.first(f"the time in {topic}", messages, MESSAGES_OF_A_TOPIC_MAX)

    looked = topics[:TOPICS_LOOKED_AT_MAX]
    if len(looked) < len(topics):
        asking.left_out(
            f"the time in {len(topics) - len(looked)} topics", "too many topics for one page: give the topic"
        )
    messages, is_cut = _gathered([answer for _, answer in await each(looked, look)])
    return [row_of(message, hides_bodies=asking.store.hides_bodies) for message in messages], is_cut


def _gathered(answers: list[tuple[list[Message], bool]]) -> tuple[list[Message], bool]:
    return [message for messages, _ in answers for message in messages], any(is_cut for _, is_cut in answers)
