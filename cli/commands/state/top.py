# SPDX-License-Identifier: Apache-2.0
"""`reput top`: the current work of a store, updated until q or Ctrl-C, or once for scripts.

The page is made in cli/commands/state/top_page.py and traffic.py.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection.addresses import away_text, is_listening, targets_of
from cli.connection.client import new_client, options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.input_lines import is_terminal
from cli.output.lines import JsonOption, print_json, write
from libs.service_names import OF_EVERY_STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reput_client import Client

    from cli.commands.state.top_page import View

PAUSE_S = 2.0
ONCE_S = 1.0
ROWS_ONCE = 60
"""Lines of the page if output is no terminal."""
QUIT = "q"


def top(
    context: typer.Context,
    seconds: Annotated[
        float | None, typer.Argument(min=0.1, help="Seconds between updates. [default: 2, with --once 1]")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print the rates in between, and end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch topics, groups, services and disks: incoming and outgoing messages, and groups that are behind. q ends it.

    Rates are counted in queues, so that a message counts when it is indexed. Of more than 10,000 queues the first are
    shown. Exit code 4 if a service does not answer at the end, 7 if all answer and there is a problem.

    Example: reput top --once --json
    """
    pause_s = seconds or (ONCE_S if once else PAUSE_S)
    is_live = not once and not as_json and sys.stdout.isatty()
    with ExitStack() as stack:
        client = stack.enter_context(_client(context))
        wait = stack.enter_context(_keys()) if is_live else _sleep
        show = stack.enter_context(_screen()) if is_live else _printer(as_json=as_json)
        view: View | None = None
        while True:
            view = _look(context, client, view)
            if not once or view.states_before is not None:
                show(view)
                sys.stdout.flush()
            if (once and view.states_before is not None) or wait(pause_s).lower() == QUIT:
                break
    if view.states.away:
        away = ", ".join(view.states.away)
        raise CommandFailed("UNAVAILABLE", f"no answer from {away}", code=ExitCode.UNAVAILABLE)
    from libs.verdict import troubles_of

    if not all(trouble.is_note for trouble in troubles_of(view.states)):
        raise typer.Exit(ExitCode.NOT_WELL)


def _client(context: typer.Context) -> Client:
    options = options_of(context)
    from reput_client import RetryPolicy

    return new_client(options, RetryPolicy(retries=1))


def _look(context: typer.Context, client: Client, before: View | None) -> View:
    """Ask all services. Traffic that is not available keeps its last values, without a rate."""
    from reput_client import ReputError

    from cli.commands.state.beside import look_beside
    from cli.commands.state.states import look
    from cli.commands.state.top_page import View
    from cli.commands.state.traffic import Traffic, look_at_traffic

    targets = targets_of(context.find_root().obj)
    away = {
        service: away_text(service, targets)
        for service in OF_EVERY_STORE
        if not any(map(is_listening, targets[service]))
    }
    states = look(client, time.time(), away, is_brief=True)
    states.beside = look_beside(context)
    traffic_before = before.traffic if before is not None else None
    try:
        traffic = look_at_traffic(client, time.monotonic()) if states.index is not None else None
    except ReputError:
        traffic = None
    return View(
        states,
        traffic or traffic_before or Traffic(time.monotonic()),
        before.states if before is not None else None,
        traffic_before if traffic is not None else None,
    )


def _printer(*, as_json: bool) -> Callable[[View], None]:
    """Return the function that prints a view behind the view before."""

    def show(view: View) -> None:
        from cli.commands.state.top_page import document, top_lines

        if as_json:
            print_json(document(view))
        else:
            columns, _ = shutil.get_terminal_size()
            write("".join(f"{line}\n" for line in top_lines(view, columns, ROWS_ONCE)))

    return show


@contextmanager
def _screen() -> Iterator[Callable[[View], None]]:
    """Show each view in place of the view before, on a screen of its own that is removed afterwards."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from cli.commands.state.top_page import top_lines

    console = Console(highlight=False)
    with Live(Text("…"), console=console, screen=True, auto_refresh=False) as live:

        def show(view: View) -> None:
            width, height = console.size
            lines = list(top_lines(view, width, height - 1))[: height - 1]
            live.update(Text.from_ansi("\n".join(lines), no_wrap=True), refresh=True)

        yield show


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Read keys as they are typed. Yields a function that waits at most so many seconds for q, and returns it or ""."""
    if not is_terminal():
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def wait(seconds: float) -> str:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            ready, _, _ = select.select([descriptor], [], [], left_s)
            key = os.read(descriptor, 1).decode(errors="replace") if ready else ""
            if key.lower() == QUIT:
                return key
        return ""

    try:
        yield wait
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
