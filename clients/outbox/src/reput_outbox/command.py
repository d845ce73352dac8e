# SPDX-License-Identifier: Apache-2.0
"""The command `reput-outbox`: the relay, its status, and what to do with refused rows."""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from reput_outbox.core.errors import OutboxError
from reput_outbox.core.settings import RelaySettings
from reput_outbox.core.table import Table
from reput_outbox.relay import Database, Relay, run_until_signal

RETRIED_MAX = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code: 1 for a failure, 2 for a wrong argument."""
    parser = make_parser()
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        database, settings = _database(given)
        return int(given.run(database, settings, given) or 0)
    except (OutboxError, ValueError, TypeError) as error:
        print(f"reput-outbox: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"reput-outbox: {error}; install reput-outbox[sqlalchemy] or reput-outbox[django]", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = argparse.ArgumentParser(
        prog="reput-outbox",
        description="Send the messages of an outbox to Reput, each exactly once.",
        epilog="The variables REPUT_CLIENT_* name the store, as for every Python client.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    relay = _command(commands, "relay", _relay, "Send messages until SIGINT or SIGTERM.")
    for field in fields(RelaySettings):
        kind = int if field.type in ("int", int) else float
        relay.add_argument(f"--{field.name.replace('_', '-')}", type=kind, help=f"default: {field.default}")
    status = _command(commands, "status", _status, "Show how many messages wait, and what stops them.")
    form = status.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--prometheus", action="store_true", help="as metrics, for a textfile collector")
    retry = _command(commands, "retry", _retry, "Send refused messages again now: one, or all.")
    retry.add_argument("id", type=int, nargs="?", help="id of the row, as `status` shows it")
    discard = _command(commands, "discard", _discard, "Delete a refused message, and let those behind it go on.")
    discard.add_argument("id", type=int, help="id of the row, as `status` shows it")
    return parser


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--database", metavar="URL", help="SQLAlchemy's URL of the database [variable: REPUT_OUTBOX_DATABASE]"
    )
    place.add_argument("--django", action="store_true", help="the outbox of the project in DJANGO_SETTINGS_MODULE")
    parser.add_argument("--name", default="reput_outbox", help="name of the table [default: reput_outbox]")
    parser.add_argument("--schema", help="schema of the tables")
    return parser


def _database(given: argparse.Namespace) -> tuple[Database, RelaySettings]:
    """Return the database, and the relay's settings. Raises OutboxError and ValueError."""
    changed = {
        field.name: value for field in fields(RelaySettings) if (value := getattr(given, field.name, None)) is not None
    }
    if given.django:
        import django

        django.setup()
        from reput_outbox.django.database import DjangoDatabase, alias, option

        return DjangoDatabase(alias()), RelaySettings(**{**option("relay", {}), **changed})
    url = given.database or os.environ.get("REPUT_OUTBOX_DATABASE")
    if not url:
        raise OutboxError("no database: give --database, REPUT_OUTBOX_DATABASE, or --django")
    from sqlalchemy import MetaData, create_engine
    from sqlalchemy.exc import ArgumentError

    from reput_outbox.sqlalchemy import Outbox, SqlDatabase

    try:
        engine = create_engine(url)
    except ArgumentError as error:
        raise OutboxError(f"the database's URL: {error}") from None
    return SqlDatabase(engine, Outbox(MetaData(), name=given.name, schema=given.schema)), RelaySettings(**changed)


def _relay(database: Database, settings: RelaySettings, _: argparse.Namespace) -> None:
    run_until_signal(Relay(database, settings))


def _status(database: Database, _: RelaySettings, given: argparse.Namespace) -> None:
    shown = database.transact(status_of)
    if given.json:
        print(json.dumps(shown))
    elif given.prometheus:
        print(_metrics(shown, given.name), end="")
    else:
        print(_page(shown))


def status_of(table: Table) -> dict[str, Any]:
    """Return the state of an outbox."""
    lane, oldest_ms, sent_ms = table.find_lane(), table.oldest_ms(), table.last_sent_ms()
    return {
        "time_s": round(time.time(), 3),
        "rows": {state.name.lower(): count for state, count in table.counts().items()},
        "oldest_pending_s": 0.0 if oldest_ms is None else max(0.0, round(time.time() - oldest_ms / 1000, 3)),
        "last_sent_s": 0.0 if sent_ms is None else sent_ms / 1000,
        "holder": lane.holder if lane else "",
        "writer_id": lane.writer_id if lane else "",
        "next_batch": lane.next_number if lane else 0,
        "trouble": lane.trouble if lane else "",
        "refused": [row._asdict() for row in table.refused()],
    }


def _page(shown: dict[str, Any]) -> str:
    """Return the status for people."""
    counts = ", ".join(f"{count} {name}" for name, count in shown["rows"].items())
    lines = [
        f"rows     {counts}",
        f"oldest   {shown['oldest_pending_s']} s",
        f"sent     {_ago(shown)}",
        f"relay    {shown['holder'] or 'none'}",
        f"writer   {shown['writer_id'] or 'none yet'}, next batch {shown['next_batch']}",
    ]
    if shown["trouble"]:
        lines.append(f"trouble  {shown['trouble']}")
    lines += [
        f"refused  {row['id']} to {row['topic']}, key {row['key']!r}, {row['attempts']} attempts: {row['reason']}"
        for row in shown["refused"]
    ]
    return "\n".join(lines)


def _ago(shown: dict[str, Any]) -> str:
    return f"last {max(0.0, shown['time_s'] - shown['last_sent_s']):.0f} s ago" if shown["last_sent_s"] else "none kept"


def _metrics(shown: dict[str, Any], name: str) -> str:
    """Return the status in the text format of Prometheus."""
    gauges = {
        "oldest_pending_seconds": shown["oldest_pending_s"],
        "last_sent_time_seconds": shown["last_sent_s"],
        "has_trouble": int(bool(shown["trouble"])),
        "status_time_seconds": shown["time_s"],
    }
    lines = ["# TYPE reput_outbox_rows gauge"]
    lines += [f'reput_outbox_rows{{outbox="{name}",state="{state}"}} {count}' for state, count in shown["rows"].items()]
    for gauge, value in gauges.items():
        lines += [f"# TYPE reput_outbox_{gauge} gauge", f'reput_outbox_{gauge}{{outbox="{name}"}} {value}']
    return "\n".join(lines) + "\n"


def _retry(database: Database, _: RelaySettings, given: argparse.Namespace) -> int:
    count = database.transact(lambda table: table.retry(RETRIED_MAX, given.id))
    if given.id is not None and not count:
        raise OutboxError(f"row {given.id} is not refused")
    print(f"{count} rows are sent again")
    return 0


def _discard(database: Database, _: RelaySettings, given: argparse.Namespace) -> int:
    if not database.transact(lambda table: table.discard(given.id)):
        raise OutboxError(f"row {given.id} is not refused")
    print(f"row {given.id} is deleted")
    return 0
