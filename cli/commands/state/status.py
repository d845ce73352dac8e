# SPDX-License-Identifier: Apache-2.0
"""`reput status`: a look at all services, or repeated looks with --watch.

The text is made in libs/verdict.py and page.py; they, and the client, are imported when a service listens.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection.addresses import away_text, is_listening, is_reached, targets_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption, print_json, printable, styled, write
from cli.output.wrapping import wrapped
from libs.service_names import OF_EVERY_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cli.commands.state.states import States

RECOVERING_FIELDS = ("state", "recovery_progress", "role", "replica_id", "segment_size_bytes", "start_time", "version")
WATCH_S = 2.0
WIDTH_MAX = 100
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
FIRST_CLEAR = "\x1b[2J"


def status(
    context: typer.Context,
    seconds: Annotated[
        float | None, typer.Argument(min=0.1, help="With --watch: seconds between updates. [default: 2]")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Update again and again, with rates, until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show whether the store is healthy, the action if it is not, and how far each service is.

    Exit code 4 if a service does not answer, 7 if all answer and there is a problem: appends are refused, for example.

    Groups whose oldest message has waited for 15 s, with a known reason, are named: the first 5, of the first 100
    groups. Numbers are rounded; --json has the states as the services report them.

    Example: reput status --watch 5
    """
    if seconds is not None and not watch:
        raise typer.BadParameter("it is the pause of --watch", param_hint="SECONDS")
    before: States | None = None
    is_well = True
    for number, states in enumerate(_looks(context, (seconds or WATCH_S) if watch else None)):
        if isinstance(states, dict):
            away = states
            _show_nobody(away, as_json=as_json, in_place=watch, is_first=not number)
            before = None
        else:
            away = states.away
            is_well = _show(states, before, as_json=as_json, in_place=watch, is_first=not number)
            before = states
        sys.stdout.flush()
    if away:
        raise CommandFailed("UNAVAILABLE", f"no answer from {', '.join(away)}", code=ExitCode.UNAVAILABLE)
    if not is_well:
        raise typer.Exit(ExitCode.NOT_WELL)


def first_look(context: typer.Context) -> States | dict[str, str]:
    """Return the states of the services, or the reason for each service if all are away."""
    return next(_looks(context, None))


def _looks(context: typer.Context, pause_s: float | None) -> Iterator[States | dict[str, str]]:
    """Yield a look, or a look after each pause: states, or the reason for each service if all are away."""
    targets = targets_of(context.find_root().obj)
    while True:
        away = {
            service: away_text(service, targets)
            for service in OF_EVERY_STORE
            if not any(map(is_listening, targets[service]))
        }
        if len(away) == len(OF_EVERY_STORE):
            yield away
        else:
            yield _look(context, away)
        if pause_s is None:
            return
        time.sleep(pause_s)


def _look(context: typer.Context, away: dict[str, str]) -> States:
    from cli.connection.client import new_client, options_of

    options = options_of(context)
    from dataclasses import replace

    from reput_client import RetryPolicy

    from cli.commands.state.beside import look_beside
    from cli.commands.state.states import look
    from cli.connection.patience import RETRIES

    targets = _asked({service: options.targets(service) for service in OF_EVERY_STORE})
    for service, target in targets.items():
        options = replace(options, **{service: target})  # type: ignore[arg-type]
    with new_client(options, RetryPolicy(retries=RETRIES)) as client:
        states = look(client, time.time(), away)
        states.beside, states.targets = look_beside(context), targets
        if any(one.service == "delivery" and one.serves for one in states.beside):
            from cli.commands.state.standing import look_levels, look_still

            states.still, states.delay_levels = look_still(client), look_levels(client)
    return states


def _asked(targets: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the address to ask of each service that has several: the first address that accepts connections."""
    several = {service: where for service, where in targets.items() if len(where) > 1}
    return {service: next(filter(is_reached, where), where[0]) for service, where in several.items()}


def _show(states: States, before: States | None, *, as_json: bool, in_place: bool, is_first: bool) -> bool:
    """Show the states. Returns whether the store is healthy."""
    from cli.commands.state.page import Rates, page_lines
    from libs.verdict import troubles_of

    troubles = troubles_of(states)
    is_well = all(trouble.is_note for trouble in troubles)
    if as_json:
        print_json(document(states))
        return is_well
    lines = page_lines(states, troubles, Rates.between(before, states), page_width())
    print_page(lines, in_place=in_place, is_first=is_first)
    return is_well


def _show_nobody(away: dict[str, str], *, as_json: bool, in_place: bool, is_first: bool) -> None:
    """Show that no service is there, without importing the client."""
    if as_json:
        troubles = [{"text": why, "action": "", "is_note": False} for why in dict.fromkeys(away.values())]
        states = {service: {"unavailable": why} for service, why in away.items()}
        print_json({**states, "verdict": {"is_healthy": False, "troubles": troubles}})
        return
    verdict = styled("not well: no service is there", fg="red", bold=True)
    lines = [
        line
        for why in dict.fromkeys(away.values())
        for line in wrapped(printable(why), page_width(), first="- ", indent="  ")
    ]
    print_page(iter([verdict, *lines]), in_place=in_place, is_first=is_first)


def print_page(lines: Iterator[str], *, in_place: bool, is_first: bool) -> None:
    """Print a page, over the page before it with --watch at a terminal."""
    if in_place and sys.stdout.isatty():
        start = FIRST_CLEAR + HOME if is_first else HOME
        height = shutil.get_terminal_size().lines - 1
        shown = list(lines)[:height]
        write(start + "".join(f"{line}{CLEAR_LINE}\n" for line in shown) + CLEAR_BELOW)
    else:
        write(("" if is_first else "\n") + "".join(f"{line}\n" for line in lines))


def page_width() -> int:
    """Return the width of a page: as the terminal, at most WIDTH_MAX."""
    return min(shutil.get_terminal_size().columns, WIDTH_MAX)


def document(states: States) -> dict[str, object]:
    """Return the states as JSON, with the verdict."""
    from dataclasses import asdict

    from cli.commands.state.beside import beside_document
    from cli.output.protos import plain
    from libs.verdict import troubles_of

    found: dict[str, object] = {}
    answers = {"commitlog": states.log, "indexer": states.index, "janitor": states.retention}
    for service, answer in answers.items():
        found[service] = _known(plain(answer)) if answer is not None else {"unavailable": states.away[service]}
    found |= beside_document(states.beside)
    if states.still:
        found["held_up_groups"] = [one._asdict() for one in states.still]
    if states.delay_levels:
        found["delay_levels"] = [asdict(level) for level in states.delay_levels]
    if states.targets:
        found["asked"] = dict(states.targets)
    troubles = troubles_of(states)
    found["verdict"] = {
        "is_healthy": all(trouble.is_note for trouble in troubles),
        "troubles": [trouble._asdict() for trouble in troubles],
    }
    return found


def _known(fields: dict[str, object]) -> dict[str, object]:
    """Return the meaningful fields of a state: a CommitLog that recovers does not know its log yet."""
    if fields.get("state") == "RECOVERING" and "recovery_progress" in fields:
        return {name: fields[name] for name in RECOVERING_FIELDS}
    return fields
