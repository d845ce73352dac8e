# SPDX-License-Identifier: Apache-2.0
"""`reput handover` and `reput promote`: which of the copies of a log takes appends."""

import time
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer
from reput.commitlog.v1.log_service_pb2 import Role
from reput_client import Client, ReputError

from cli.connection import Patience, client_of, options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output import JsonOption, print_fields


class LeadingRole(StrEnum):
    """Roles of a log that takes appends, by the names that people type."""

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"

    @property
    def value_sent(self) -> Role.ValueType:
        """As the service calls it."""
        return Role.Value(f"ROLE_{self.name}")


def handover(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The log that follows, and will lead.")],
    seen_as: Annotated[
        str | None,
        typer.Option("--as", metavar="HOST:PORT", help="Its address for the other logs. [default: the same]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let another log lead: the leader takes no more appends, waits until the other one has all, and follows it.

    Nothing that was acknowledged is lost. Run it at the leader; clients that are refused hear who leads. If the other
    one is behind, nothing changes.
    """
    next_options = replace(options_of(context), commitlog=target)
    with client_of(context) as client, Client(next_options, Patience()) as next_client:
        replica_id = next_client.admin.commitlog_status().replica_id
        began_s = time.monotonic()
        left = client.admin.demote(replica_id, seen_as or target)
        try:
            begun = next_client.admin.promote(
                left.former_role, epoch=left.epoch, end_physical_offset=left.end_physical_offset
            )
        except ReputError as error:
            text = f"the old leader follows now, but {target} does not lead: {error.text}; see `reput promote --help`"
            raise CommandFailed(error.reason or error.code.name, text, code=ExitCode.FAILED) from error
    fields = {
        "leader": replica_id,
        "epoch": begun.epoch.number,
        "end_physical_offset": left.end_physical_offset,
        "duration_ms": round((time.monotonic() - began_s) * 1000),
    }
    print_fields(fields, as_json=as_json)


def promote(
    context: typer.Context,
    role: Annotated[LeadingRole, typer.Option(help="What it will be.")] = LeadingRole.ASYNC_MASTER,
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Give up what was acknowledged and is not here.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let a log that follows lead, because its leader is lost. Run it at the log that follows, once.

    Choose one of the in-sync set (`reput replicas` tells it, at the leader, and of itself each log): it has all that
    was acknowledged as REPLICATED. What else the leader had acknowledged may be missing, and is cut off at the old
    leader when that follows. Refused while the leader is heard: let it hand over.
    """
    with client_of(context) as client:
        begun = client.admin.promote(role.value_sent, accept_data_loss=accept_data_loss)
    start = begun.epoch.start_physical_offset
    print_fields({"epoch": begun.epoch.number, "start_physical_offset": start}, as_json=as_json)
