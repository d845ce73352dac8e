# SPDX-License-Identifier: Apache-2.0
"""Overview: all shards of a store, each with its state, its disks and its contents."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from libs.figures import many
from libs.service_names import SERVICES
from services.console.pages.operate.store import Disk, Health, ServiceRow, StorePage
from services.console.pages.page import Gap, Page, command


class Contents(Struct, frozen=True):
    """The topics and messages of a shard, without the store's own."""

    topic_count: int
    queue_count: int
    """Queues that have had messages."""
    message_count: int


class ShardRow(Struct, frozen=True):
    """A shard. Figures are None if they could not be asked."""

    name: str
    target: str
    """The addresses of its CommitLog."""
    health: Health
    """`away`: its CommitLog does not answer, or is not well enough to say more."""
    state: str
    """`answers`, or the services that do not, or have a problem, with their reasons."""
    contents: Contents | None
    kept_bytes: int | None
    end_physical_offset: int | None
    """The end of its log."""
    disks: tuple[Disk, ...]


class ShardsPage(Page, frozen=True, kw_only=True):
    """All shards."""

    template: ClassVar = "shards.html"

    verdict: str
    is_healthy: bool
    rows: tuple[ShardRow, ...]


def shard_row(name: str, target: str, store: StorePage, contents: Contents | None) -> ShardRow:
    """Return a shard as a row, from the page of its store."""
    bad = [one for one in store.services if one.health != "good"]
    is_away = any(one.name == SERVICES["commitlog"] and one.health == "away" for one in bad)
    return ShardRow(
        name=name,
        target=target,
        health="away" if is_away else "problem" if bad else "good",
        state="; ".join(map(_state, bad)) or "answers",
        contents=contents,
        kept_bytes=store.kept_bytes if store.marks else None,
        end_physical_offset=store.marks[-1].physical_offset if store.marks else None,
        disks=store.disks,
    )


def shards_page(rows: Sequence[ShardRow], gaps: tuple[Gap, ...]) -> ShardsPage:
    """Return the page of all shards."""
    bad = [row.name for row in rows if row.health != "good"]
    return ShardsPage(
        commands=(command("shards", "list"),),
        gaps=gaps,
        verdict=f"Look at {', '.join(bad)}." if bad else f"{many(len(rows), 'shard')} without a problem.",
        is_healthy=not bad,
        rows=tuple(rows),
    )


def _state(service: ServiceRow) -> str:
    """Return why a service is not well."""
    problems = "; ".join(problem.text for problem in service.problems if not problem.is_note)
    return f"{service.name}: {problems or service.state}"
