# SPDX-License-Identifier: Apache-2.0
"""`reput tx …`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.typed.confirm import YesOption, confirm
from cli.commands.typed.group import command_group
from cli.connection.addresses import place_of
from cli.connection.client import client_of
from cli.output.lines import JsonOption
from cli.output.moments import time_text
from cli.output.tables import print_fields, print_rows

if TYPE_CHECKING:
    from reput_client import OpenTransaction

transactions = command_group("Transactions: list open transactions, commit them or roll them back.")

COLUMNS = (
    "id", "group", "topic", "queue_id", "begun", "check_count", "next_check", "offset_message_id",
)  # fmt: skip
SPARE_COLUMNS = ("offset_message_id", "queue_id", "next_check", "check_count")


@transactions.command("list")
def list_transactions(
    context: typer.Context,
    group: Annotated[str, typer.Option(help="Only transactions of this producer group.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the transactions that are open, the oldest first: consumers do not see their messages yet.

    Example: reput tx list --group shop
    """
    with client_of(context, "delivery") as client:
        rows = [_document(one) if as_json else asdict(one) for one in client.transactions.list(group)]
    print_rows(rows, COLUMNS, as_json=as_json, spare=SPARE_COLUMNS)


@transactions.command("resolve")
def resolve(
    context: typer.Context,
    transaction_id: Annotated[str, typer.Argument(help="Its id, or the offset id of its message.")],
    commit: Annotated[
        bool, typer.Option("--commit/--rollback", help="Whether consumers see its message.", show_default=False)
    ],
    yes: Annotated[bool, YesOption] = False,
    as_json: JsonOption = False,
) -> None:
    """End a transaction in the place of its producer, which can't be undone.

    A repetition of the same command does nothing.

    Example: reput tx resolve 01A2B3C4D5E6F70000000000000000002A --rollback
    """
    ended_as = "commit" if commit else "rollback"
    place = place_of(context.find_root().obj, "delivery")
    confirm(f"{ended_as.replace('rollback', 'roll back')} the transaction {transaction_id}", place=place, yes=yes)
    with client_of(context, "delivery") as client:
        if commit:
            client.transactions.commit(transaction_id)
        else:
            client.transactions.rollback(transaction_id)
    print_fields({"id": transaction_id, "ended_as": ended_as}, as_json=as_json)


def _document(transaction: OpenTransaction) -> dict[str, object]:
    """Return a transaction with exact times, for --json."""
    times = {"begun": transaction.begun, "next_check": transaction.next_check}
    texts = {name: time and time_text(round(time.timestamp() * 1000)) for name, time in times.items()}
    return {**asdict(transaction), **texts}
