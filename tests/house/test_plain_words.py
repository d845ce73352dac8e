# SPDX-License-Identifier: Apache-2.0
"""Vague words are rare in all texts of the repository."""

import pytest

from tests.house.prose import Count, count_of

ROOMS = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "bench",
    "cli",
    "clients/README.md",
    "clients/faststream",
    "clients/go",
    "clients/java",
    "clients/node",
    "clients/outbox",
    "clients/pytest",
    "clients/kombu",
    "clients/python",
    "clients/spark",
    "demo",
    "deploy",
    "docs",
    "libs/filters",
    "libs/formats",
    "libs/kernel",
    "libs/log",
    "libs/machine",
    "libs/requests",
    "libs/runtime",
    "libs/segments",
    "protos/reput",
    "services/commitlog",
    "services/console",
    "services/delivery",
    "services/gateway",
    "services/indexer",
    "services/janitor",
    "tests",
    "tools",
)
PER_HUNDRED_MAX = 0.8
"""The most vague words of a hundred in a room."""
PER_HUNDRED_MAX_OF_ALL = 0.3


def test_vague_words_are_rare() -> None:
    """Each room, and all rooms together, stay within their limit."""
    counts = {room: count_of(room) for room in ROOMS}
    wrong = [
        f"{room}: {count.per_hundred:.2f} vague words of a hundred, the limit is {PER_HUNDRED_MAX}"
        for room, count in counts.items()
        if count.per_hundred > PER_HUNDRED_MAX
    ]
    assert not wrong, "\n".join(wrong)
    total = Count(
        sum(count.word_count for count in counts.values()), sum(count.vague_count for count in counts.values())
    )
    assert total.per_hundred <= PER_HUNDRED_MAX_OF_ALL


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_have_words(room: str) -> None:
    """A room that was renamed or moved is an error here, not a room without vague words."""
    assert count_of(room).word_count > 100


def test_vague_words_are_counted() -> None:
    """Code in backticks, and words that contain a vague word, do not count."""
    count = Count().with_text("Whoever reads `what`, reads one of those. Someone phones.")
    assert count == Count(word_count=9, vague_count=3)
