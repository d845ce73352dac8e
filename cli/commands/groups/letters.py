# SPDX-License-Identifier: Apache-2.0
"""`reput dlq …`: messages that groups could not process."""

from __future__ import annotations

import itertools
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.typed.group import command_group
from cli.connection.client import client_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json
from cli.output.messages import message_fields, print_message
from cli.output.moments import TIME_FORMS, parse_moment, time_text
from cli.output.progress import progress
from cli.output.tables import print_fields, print_rows
from libs.figures import many

if TYPE_CHECKING:
    from reput_client import DeadLetter, Replay

letters = command_group("Dead letters of groups: list, show, replay.")

GroupArgument = Annotated[str, typer.Argument(help="Name of the group.")]
WhereOption = Annotated[
    str, typer.Option("--where", metavar="CONDITION", help="Of properties: \"price > 10 AND region = 'eu'\".")
]
StartOption = Annotated[str | None, typer.Option("--start", metavar="TIME", help=f"Died then or later: {TIME_FORMS}.")]
EndOption = Annotated[str | None, typer.Option("--end", metavar="TIME", help="Died before this time.")]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Most letters. [default: all]")]

COLUMNS = (
    "place", "died_time", "origin_topic", "origin_queue_id", "origin_queue_offset", "attempt_count", "keys",
    "body_bytes",
)  # fmt: skip
SPARE_COLUMNS = ("body_bytes", "keys", "attempt_count")
TOPIC_COLUMNS = ("topic", "replayed_count", "refused_count", "refusal")
PLACE = re.compile(r"(\d{1,10})/(\d{1,19})")


@letters.command("list")
def list_letters(
    context: typer.Context,
    group: GroupArgument,
    where: WhereOption = "",
    start: StartOption = None,
    end: EndOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a group's dead letters that were not replayed, and their origins. Exit code 3 if there is none.

    Example: reput dlq list billing --start -1d
    """
    with client_of(context, "delivery") as client:
        found = client.dead_letters.list(group, where=where, start=parse_moment(start), end=parse_moment(end))
        some = list(itertools.islice(found, limit))
    if not some:
        raise _none(group)
    if as_json:
        for letter in some:
            print_json(_document(letter))
        return
    print_rows(map(_row, some), COLUMNS, as_json=False, spare=SPARE_COLUMNS)


@letters.command("show")
def show_letter(
    context: typer.Context,
    group: GroupArgument,
    place: Annotated[str, typer.Argument(metavar="QUEUE/OFFSET", help="The place, as in `reput dlq list`.")],
    as_json: JsonOption = False,
) -> None:
    """Show a dead letter: its origin, its number of attempts, and the message. Exit code 3 if there is none.

    Example: reput dlq show billing 0/17
    """
    with client_of(context, "delivery") as client:
        letter = next(iter(client.dead_letters.list(group, places=[_place(place)])), None)
    if letter is None:
        raise _none(group)
    if as_json:
        print_json(_document(letter))
        return
    print_fields({name: value for name, value in _row(letter).items() if value not in (None, "", [])}, as_json=False)
    print_message(letter.message, as_json=False)


@letters.command("replay")
def replay_letters(
    context: typer.Context,
    group: GroupArgument,
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[QUEUE/OFFSET...]", help="Only these letters. [default: all]")
    ] = None,
    where: WhereOption = "",
    start: StartOption = None,
    end: EndOption = None,
    limit: LimitOption = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="Most letters in a second.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the counts, and append nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Append dead letters to the topics that they came from, each once, however often this is called.

    It prints the number of letters for each topic. Exit code 3 if no letter is selected, 5 if some stay because their
    topic accepts no messages.
    After a failure or a Ctrl-C it may be called again.

    Example: reput dlq replay billing --where "region = 'eu'" --rate 100 --dry-run
    """
    last: Replay | None = None
    with (
        client_of(context, "delivery") as client,
        progress("would replay" if dry_run else "replaying", None, "letters") as meter,
    ):
        for last in client.dead_letters.replay(
            group,
            places=[_place(place) for place in places or ()],
            where=where,
            start=parse_moment(start),
            end=parse_moment(end),
            per_second_max=rate or 0,
            count_max=limit or 0,
            dry_run=dry_run,
        ):
            meter.show(last.passed_count, count=last.replayed_count, total=last.total_count)
    assert last is not None
    if not last.topics:
        raise _none(group)
    if as_json:
        print_json({"group": group, "is_dry_run": dry_run, **asdict(last)})
    else:
        print_rows(map(asdict, last.topics), TOPIC_COLUMNS, as_json=False, prose="refusal")
    if last.refused_count:
        text = "; ".join(f"{many(one.refused_count, 'letter')}: {one.refusal}" for one in last.topics if one.refusal)
        raise CommandFailed("NOT_REPLAYED", text, code=ExitCode.REFUSED)


def _place(text: str) -> tuple[int, int]:
    match = PLACE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r}: expected a queue and an offset, as in 0/17", param_hint="QUEUE/OFFSET")
    return int(match[1]), int(match[2])


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": "/".join(map(str, letter.place)),
        "died_time": time_text(letter.message.store_time_ms),
        "origin_topic": letter.origin_topic,
        "origin_queue_id": letter.origin_queue_id,
        "origin_queue_offset": letter.origin_queue_offset,
        "origin_message_id": letter.origin_message_id,
        "attempt_count": letter.attempt_count,
        "keys": list(letter.message.keys),
        "body_bytes": len(letter.message.raw_body),
    }


def _document(letter: DeadLetter) -> dict[str, Any]:
    """Return all of a letter: the message, and its origin."""
    return {**message_fields(letter.message), **_row(letter)}


def _none(group: str) -> CommandFailed:
    return CommandFailed("NO_MESSAGES", f"group {group} has no such dead letter", code=ExitCode.NOT_FOUND)
