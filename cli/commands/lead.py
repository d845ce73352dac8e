# SPDX-License-Identifier: Apache-2.0
"""`reput replicas`, `handover` and `promote`: the copies of a log, and the leader among them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection.addresses import check_target, is_reached, is_shared, targets_of
from cli.connection.client import client_of, new_client, options_of
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.lines import JsonOption
from cli.output.tables import print_fields, print_rows
from libs.service_names import PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reput.commitlog.v1.log_service_pb2 import GetStatusResponse, Replica, Role
    from reput_client import Options, ReputError

REPLICA_COLUMNS = (
    "replica_id", "is_in_sync", "lag_bytes", "unsynced_bytes", "lag_s", "caught_up_percent", "catch_up_left_s",
    "connected_time",
)  # fmt: skip
MEMBER_COLUMNS = ("target", "replica_id", "state", "epoch", "is_in_sync", "lag_bytes", "lag_s", "reason")
AFTERWARDS = (
    "`reput replicas` with the addresses of all logs shows the leader; with a coordinator a leader is elected within "
    "seconds, without a coordinator see `reput promote --help`"
)


class LeadingRole(StrEnum):
    """Roles of a log that accepts appends, by the names that users type."""

    ASYNC_MASTER = "async-master"
    SYNC_MASTER = "sync-master"

    @property
    def value_sent(self) -> Role.ValueType:
        """The role as the service names it."""
        from reput.commitlog.v1.log_service_pb2 import Role

        return Role.Value(f"ROLE_{self.name}")


def replicas(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the followers of this log, how far behind each is, and whether REPLICATED waits for it.

    A member of the in-sync set that is not connected has no figures. For a follower, show its leader, and how far it is
    behind. Exit code 5 if it can't follow.

    With a list of addresses (`reput --commitlog a:7101,b:7101 replicas`) ask each log, and show all. Exit code 4 if
    a log can't be reached, 5 unless there is a single leader.

    Example: reput replicas
    """
    options = options_of(context)
    from reput.commitlog.v1.log_service_pb2 import FOLLOWING_STATE_OUT

    from cli.output.protos import plain

    targets = targets_of(context.find_root().obj)
    if len(targets["commitlog"]) > 1 and not is_shared("commitlog", targets):
        _members(options, as_json=as_json)
        return
    with client_of(context, "commitlog") as client:
        state = client.admin.commitlog_status()
    if not state.HasField("following"):
        connected = {replica.replica_id: _replica(replica, state) for replica in state.replicas}
        away = {name: {"replica_id": name, "is_in_sync": True} for name in state.in_sync_replica_ids[1:]}
        print_rows((away | connected).values(), REPLICA_COLUMNS, as_json=as_json)
        return
    following = state.following
    lag_bytes = max(following.leader_max_physical_offset - state.max_physical_offset, 0)
    print_fields({**plain(following), "lag_bytes": lag_bytes}, as_json=as_json)
    if following.state == FOLLOWING_STATE_OUT:
        raise CommandFailed("OUT", following.last_error, code=ExitCode.REFUSED)


def _replica(replica: Replica, state: GetStatusResponse) -> dict[str, object]:
    """Return a leader's figures for a follower. The lag in time is 0 for a follower that has all.

    The caught-up part is counted from the beginning of its stream. The time that is left, at its pace so far, is given
    after the first bytes have come.
    """
    from cli.output.protos import plain
    from libs.members import replica_lag_s

    return {
        **plain(replica),
        "lag_bytes": max(state.max_physical_offset - replica.received_physical_offset, 0),
        "unsynced_bytes": max(replica.received_physical_offset - replica.flushed_physical_offset, 0),
        "lag_s": replica_lag_s(replica, state.max_physical_offset),
        **(_catching_up(replica, state.max_physical_offset) if replica.is_catching_up else {}),
    }


def _catching_up(replica: Replica, end: int) -> dict[str, object]:
    """Return the progress of a follower that receives old records."""
    came_bytes = replica.received_physical_offset - replica.start_physical_offset
    left_bytes = max(end - replica.received_physical_offset, 0)
    seconds = (replica.heard_time.ToMilliseconds() - replica.connected_time.ToMilliseconds()) / 1000
    found: dict[str, object] = {"caught_up_percent": round(100 * came_bytes / max(came_bytes + left_bytes, 1))}
    if came_bytes:
        found["catch_up_left_s"] = round(left_bytes * seconds / came_bytes)
    return found


def _members(options: Options, *, as_json: bool) -> None:
    """Ask all logs, and print a line for each."""
    from reput_client import ReputError

    from libs.members import leads

    targets = options.targets("commitlog")
    with ThreadPoolExecutor(len(targets)) as pool:
        answers = dict(zip(targets, pool.map(partial(_status, options), targets), strict=True))
    known = {target: state for target, state in answers.items() if not isinstance(state, ReputError)}
    leaders = [state for state in known.values() if leads(state)]
    seen = {one.replica_id: _replica(one, state) for state in leaders for one in state.replicas}
    rows: list[dict[str, object]] = []
    for target, answer in answers.items():
        if isinstance(answer, ReputError):
            reason = answer.text if is_reached(target) else "nobody answers"
            rows.append({"target": target, "state": "UNREACHABLE", "reason": reason})
        else:
            rows.append({"target": target, **member_of(answer, seen.get(answer.replica_id, {}))})
    print_rows(rows, MEMBER_COLUMNS, as_json=as_json, prose="reason")
    if len(known) < len(targets):
        away = ", ".join(target for target in targets if target not in known)
        raise CommandFailed("UNAVAILABLE", f"no answer from {away}", code=ExitCode.UNAVAILABLE)
    if len(leaders) != 1:
        raise CommandFailed("NO_LEADER", f"{len(leaders)} of them lead", code=ExitCode.REFUSED)


def _status(options: Options, target: str) -> GetStatusResponse | ReputError:
    """Return a log's status, or the error of the call."""
    from reput_client import ReputError, RetryPolicy

    from cli.connection.patience import RETRIES

    try:
        with new_client(replace(options, commitlog=target), RetryPolicy(retries=RETRIES)) as client:
            return client.admin.commitlog_status()
    except ReputError as error:
        return error


def member_of(state: GetStatusResponse, seen: dict[str, object]) -> dict[str, object]:
    """Return a line about a log, from its own status and from its leader's figures."""
    from libs.members import leads, standing_of

    following = state.following
    lag_bytes = max(following.leader_max_physical_offset - state.max_physical_offset, 0)
    figures = {
        "is_in_sync": leads(state) or following.is_in_sync,
        "lag_bytes": lag_bytes,
        "lag_s": None if state.HasField("following") else 0.0,
    }
    stated, reason = standing_of(state)
    return {
        "replica_id": state.replica_id,
        "state": stated,
        "epoch": state.epoch,
        **figures,
        **{name: value for name, value in seen.items() if name in figures},
        "reason": reason,
    }


def handover(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The follower that will lead.")],
    seen_as: Annotated[
        str | None,
        typer.Option("--as", metavar="HOST:PORT", help="Its address for the other logs. [default: the same]"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make another log lead: the leader accepts no more appends, waits until the other log has all, and follows it.

    No acknowledged record is lost. Run it at the leader; clients that are refused get the address of the new leader. If
    the other log is behind, nothing changes.

    Example: reput --commitlog a:7101 handover b:7101
    """
    check_target(target, flag="HOST:PORT", port=PORTS["commitlog"])
    next_options = replace(options_of(context), commitlog=target)
    from reput_client import ReputError

    from cli.connection.patience import Patience

    with client_of(context, "commitlog") as client, new_client(next_options, Patience()) as next_client:
        with _handing_over(target, "nothing was changed, and the leader goes on"):
            replica_id = next_client.admin.commitlog_status().replica_id
        began_s = time.monotonic()
        try:
            left = client.admin.demote(replica_id, seen_as or target)
        except ReputError as error:
            raise _not_told(error, options_of(context).targets("commitlog")) from error
        left_note = f"the old leader follows {target} by now, which does not lead; {AFTERWARDS}"
        with _handing_over(target, left_note):
            begun = next_client.admin.promote(
                left.former_role, epoch=left.epoch, end_physical_offset=left.end_physical_offset
            )
    fields = {
        "leader": replica_id,
        "epoch": begun.epoch.number,
        "end_physical_offset": left.end_physical_offset,
        "duration_ms": round((time.monotonic() - began_s) * 1000),
    }
    print_fields(fields, as_json=as_json)


@contextmanager
def _handing_over(target: str, note: str) -> Iterator[None]:
    """Add the address and `note`, the consequence, to an error of the next leader."""
    from reput_client import ReputError, UnavailableError

    try:
        yield
    except ReputError as error:
        is_away = isinstance(error, UnavailableError) and not error.reason
        text = f"nobody answers at {target}" if is_away and not is_reached(target) else f"{target}: {error.text}"
        code = ExitCode.UNAVAILABLE if is_away else ExitCode.FAILED
        raise CommandFailed("UNAVAILABLE" if is_away else "HANDOVER", f"{text}; {note}", code=code) from error


def _not_told(error: ReputError, targets: Sequence[str]) -> Exception:
    """Return the error to raise for an error of the leader. If its answer was lost, the result is not known."""
    from cli.connection.client import NO_CONNECTION

    is_answer = error.reason not in ("", "STOPPING", "DEPENDENCY_UNAVAILABLE")
    if is_answer or error.text.startswith(NO_CONNECTION):
        return error
    text = f"whether {', '.join(targets)} has handed over is not known: {error.text}; {AFTERWARDS}"
    return CommandFailed("HANDOVER", text, code=ExitCode.UNAVAILABLE)


def promote(
    context: typer.Context,
    role: Annotated[LeadingRole, typer.Option(help="Its role as the leader.")] = LeadingRole.ASYNC_MASTER,
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Give up acknowledged records that this log lacks.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a follower the leader, because its leader is lost. Run it at the follower, once.

    Choose a member of the in-sync set (`reput replicas` shows the set at the leader, and each log's own membership): it
    has all records acknowledged as REPLICATED. Other records that the leader had acknowledged may be missing, and are
    truncated at the old leader when it follows. Refused while the leader is connected: use `reput handover` then.

    Example: reput --commitlog b:7101 promote
    """
    if is_shared("commitlog", targets_of(context.find_root().obj)):
        text = "a gateway chooses the log that it asks: name the address of the log that will lead"
        raise typer.BadParameter(text, param_hint="--commitlog")
    with client_of(context, "commitlog") as client:
        begun = client.admin.promote(role.value_sent, accept_data_loss=accept_data_loss)
    start = begun.epoch.start_physical_offset
    print_fields({"epoch": begun.epoch.number, "start_physical_offset": start}, as_json=as_json)
