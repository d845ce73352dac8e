# SPDX-License-Identifier: Apache-2.0
"""`reput shards drain`: all open queues of a shard go to the others, and then the shard becomes empty."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.shards.changes import note_finished
from cli.commands.shards.group import DEFAULT_FILE, DryRunOption, FileOption, shards
from cli.commands.shards.opened import opened_shards
from cli.commands.shards.rows import CHANGE_COLUMNS, change_rows, print_queues
from cli.exit_codes import CommandFailed, ExitCode, code_of
from cli.output.lines import JsonOption, note_line, warning_line
from cli.output.progress import Meter, progress
from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cli.commands.shards.opened import Opened

LEFT_COLUMNS = ("left", "group", "topic", "count", "left_bytes")


@shards.command("drain")
def drain(
    context: typer.Context,
    shard: Annotated[str, typer.Argument(help="Name of the shard.")],
    dry_run: DryRunOption = False,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Move all open queues of a shard to the others, and list all that the shard still has. It may be repeated.

    Topics that are whole at the shard are spread over the others. The shard's messages stay until groups have read them
    and their retention is over. Exit code 0 if nothing but bytes is left, and then the shard can be removed. The file
    must say `takes_topics = false` for the shard, so that new topics get no queues there.

    Example: reput shards drain c
    """
    with opened_shards(context, shards_file) as opened:
        opened.check([shard], "SHARD")
        others = [name for name in opened.for_topics if name != shard]
        if not others:
            raise CommandFailed("CHANGE_REFUSED", "no other shard takes topics", code=ExitCode.REFUSED)
        if opened.shards[shard].takes_topics:
            warning_line(
                f"new topics still come to shard {shard}: say `takes_topics = false` in its table of {shards_file}, "
                "and start the gateways again"
            )
        draining = _Draining(opened, shard, others, is_tried=dry_run)
        with progress("moving", None, "queues") as meter:
            rows = list(draining.rows(meter))
        if rows or dry_run:
            print_queues(rows, CHANGE_COLUMNS, as_json=as_json)
        if dry_run:
            note_line("nothing was changed")
            return
        left = _left(opened, shard)
    print_rows(left, LEFT_COLUMNS, as_json=as_json)
    _check_empty(shard, left, draining.refusals)


class _Draining:
    """The changes that empty a shard. `refusals` has the errors of topics that can't be changed."""

    def __init__(self, opened: Opened, shard: str, others: Sequence[str], *, is_tried: bool) -> None:
        self._clients, self._shard, self._others = opened.clients, shard, others
        self._is_tried = is_tried
        self.refusals: list[CommandFailed] = []
        self._loads: Counter[str] = Counter()
        self._topics: dict[str, int] = {}

    def rows(self, meter: Meter) -> Iterator[dict[str, Any]]:
        """Change one topic after the other. Yields the queues of each change. Raises CommandFailed."""
        self._look()
        done, total = 0, sum(self._topics.values())
        for topic, count in self._topics.items():
            try:
                for number, rows in enumerate(self._changes(topic)):
                    yield from rows
                    meter.show(min(done + number + 1, total), total=total)
            except CommandFailed as failure:
                if failure.code is not ExitCode.REFUSED or self._is_tried:
                    raise
                self.refusals.append(failure)
            done += count

    def _look(self) -> None:
        """Count the open queues of all shards, and of the topics of this shard. Raises CommandFailed."""
        from reput_client import ReputError

        from cli.commands.shards.left import open_queue_count, topics_of

        for name, client in self._clients.items():
            try:
                counts = {topic.name: open_queue_count(topic) for topic in topics_of(client)}
            except ReputError as error:
                text = f"shard {name}: {error}; nothing was changed"
                raise CommandFailed("SHARD_FAILED", text, code=code_of(error)) from error
            self._loads[name] = sum(counts.values())
            if name == self._shard:
                self._topics = {topic: count for topic, count in counts.items() if count}

    def _changes(self, topic: str) -> Iterator[list[dict[str, Any]]]:
        """Change a topic until it has no open queue at the shard. Yields the queues of each change."""
        from cli.commands.shards.changer import Changer
        from cli.commands.shards.plans import draining

        changer = Changer(self._clients, topic, is_tried=self._is_tried)
        while (change := changer.make(draining(self._shard, self._others, self._loads))) is not None:
            self._loads[self._shard] -= len(change.parents)
            self._loads.update(child.place.shard for child in change.children)
            yield change_rows(topic, change, changer.seen.shares)
        note_finished(topic, changer.finished, dry_run=self._is_tried)


def _left(opened: Opened, shard: str) -> list[dict[str, Any]]:
    from reput_client import ReputError

    from cli.commands.shards.left import left_at

    try:
        return left_at(opened.clients[shard])
    except ReputError as error:
        text = f"all open queues were moved, and it is not known what shard {shard} still has: {error}"
        raise CommandFailed("SHARD_FAILED", text, code=code_of(error)) from error


def _check_empty(shard: str, left: Sequence[Mapping[str, Any]], refusals: Sequence[CommandFailed]) -> None:
    """Raise CommandFailed if anything but bytes is left."""
    parts = [f"{row['count']:,} {row['left']}" for row in left if row["count"]]
    if parts:
        text = "; ".join([f"shard {shard} still has {', '.join(parts)}", *map(str, refusals)])
        raise CommandFailed("NOT_EMPTY", f"{text}; repeat the command until nothing but bytes is left")
