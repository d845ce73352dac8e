# SPDX-License-Identifier: Apache-2.0
"""`reput shards split`, `move`, `merge`, `spread`, `finish`: changes of the queues of a topic over shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.shards.group import DEFAULT_FILE, DryRunOption, FileOption, TopicArgument, shards
from cli.commands.shards.opened import opened_shards
from cli.commands.shards.rows import CHANGE_COLUMNS, change_rows, change_text, print_queues
from cli.output.lines import JsonOption, note_line, warning_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cli.commands.shards.opened import Opened
    from cli.commands.shards.plans import Plan
    from libs.formats.config.topic_share import ShareChange

QueueArgument = Annotated[int, typer.Argument(metavar="QUEUE", min=0, help="Queue within the topic.")]
ToOption = Annotated[str, typer.Option("--to", metavar="SHARD", help="The shard of the new queue.")]


@shards.command("split")
def split(
    context: typer.Context,
    topic_name: TopicArgument,
    queue: QueueArgument,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="SHARD",
            help="A shard with a new queue; may be repeated. [default: the two shards with the fewest open queues]",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Give the keys of a queue to new queues, in equal parts. The queue is sealed: it keeps its messages for readers.

    A change that was broken off is finished first. Messages of these keys wait for the new queues for a moment.

    Example: reput shards split orders 3 --to b --to c
    """

    def plan(opened: Opened) -> Plan:
        from cli.commands.shards.plans import splitting

        opened.check(to or (), "--to")
        return splitting(queue, to or (), opened.for_topics)

    _change(context, topic_name, shards_file, plan, dry_run=dry_run, as_json=as_json)


@shards.command("move")
def move(
    context: typer.Context,
    topic_name: TopicArgument,
    queue: QueueArgument,
    to: ToOption,
    dry_run: DryRunOption = False,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Give the keys of a queue to a new queue at another shard. The queue's messages stay where they are.

    Example: reput shards move orders 3 --to c
    """

    def plan(opened: Opened) -> Plan:
        from cli.commands.shards.plans import moving

        opened.check([to], "--to")
        return moving(queue, to)

    _change(context, topic_name, shards_file, plan, dry_run=dry_run, as_json=as_json)


@shards.command("merge")
def merge(
    context: typer.Context,
    topic_name: TopicArgument,
    queues: Annotated[
        list[int], typer.Argument(metavar="QUEUE QUEUE...", min=0, help="Queues whose ranges follow each other.")
    ],
    to: ToOption,
    dry_run: DryRunOption = False,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Give the keys of several queues, whose ranges follow each other, to a single new queue.

    Example: reput shards merge orders 3 4 --to b
    """

    def plan(opened: Opened) -> Plan:
        from cli.commands.shards.plans import merging

        opened.check([to], "--to")
        return merging(queues, to)

    _change(context, topic_name, shards_file, plan, dry_run=dry_run, as_json=as_json)


@shards.command("spread")
def spread(
    context: typer.Context,
    topic_name: TopicArgument,
    queues: Annotated[
        int | None, typer.Option(min=1, max=256, help="New queues, shared evenly. [default: four for each shard]")
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="SHARD", help="A shard with new queues; may be repeated. [default: all]"),
    ] = None,
    dry_run: DryRunOption = False,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Give a topic that is whole at a single shard new queues over shards. Its queues until now are sealed.

    So the topics of a store that became a shard come to all shards.

    Example: reput shards spread orders --queues 12
    """

    def plan(opened: Opened) -> Plan:
        from cli.commands.shards.plans import spreading

        opened.check(to or (), "--to")
        return spreading(to or opened.for_topics, queues or 0)

    _change(context, topic_name, shards_file, plan, dry_run=dry_run, as_json=as_json)


@shards.command("finish")
def finish(
    context: typer.Context,
    topic_name: TopicArgument,
    shards_file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
) -> None:
    """Finish a change of a topic that was broken off. It prints the queues of this change, nothing without a change.

    Example: reput shards finish orders
    """
    with opened_shards(context, shards_file) as opened:
        from cli.commands.shards.changer import Changer
        from cli.commands.shards.plans import nothing

        changer = Changer(opened.clients, topic_name)
        changer.make(nothing)
        shares = changer.seen.shares
        rows = [row for change in changer.finished for row in change_rows(topic_name, change, shares)]
    print_queues(rows, CHANGE_COLUMNS, as_json=as_json)


def _change(
    context: typer.Context,
    topic: str,
    file: Path,
    plan_for: Callable[[Opened], Plan],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make a change, or with `dry_run` plan it, and print its queues as they are after it."""
    with opened_shards(context, file) as opened:
        from cli.commands.shards.changer import Changer

        changer = Changer(opened.clients, topic, is_tried=dry_run)
        change = changer.make(plan_for(opened))
        assert change is not None
        note_finished(topic, changer.finished, dry_run=dry_run)
        print_queues(change_rows(topic, change, changer.seen.shares), CHANGE_COLUMNS, as_json=as_json)
    if dry_run:
        note_line("nothing was changed")


def note_finished(topic: str, changes: Sequence[ShareChange], *, dry_run: bool) -> None:
    """Tell the changes of other programs that are finished first."""
    for change in changes:
        verb = "would be finished first" if dry_run else "was finished"
        warning_line(f"another change of topic {topic} was under way, and {verb}: {change_text(change)}")
