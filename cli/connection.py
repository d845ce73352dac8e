# SPDX-License-Identifier: Apache-2.0
"""Where the services are: the options in front of every command, and the client that they make."""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from reput_client import Client, Options, ReputError, RetryPolicy

from cli.output import warning_line
from libs.runtime.trust.tokens import find_local_token

RETRIES = 4
"""A person waits about a second for an address where nobody answers; scripts use `reput health --wait`."""

STARTING_REASONS = frozenset({"RECOVERING", "DEPENDENCY_UNAVAILABLE", "QUEUE_OFFSETS_UNKNOWN"})
"""With these a service says that it is there, and still waits for its files or for another service."""
NOTED_ATTEMPT = 3
LONG = RetryPolicy()


@dataclass(frozen=True, slots=True)
class Patience(RetryPolicy):
    """Asks a service again that says that it is starting, for half a minute at most, and with a note."""

    retries: int = RETRIES
    timeout_s: float = math.inf
    """Longest time of all attempts, for who has no time-out of its own."""
    noted_reasons: set[str] = field(default_factory=set, repr=False, compare=False)

    def delay_s(self, attempt: int, error: ReputError, *, is_repeatable: bool = True) -> float | None:
        """See RetryPolicy."""
        if error.reason not in STARTING_REASONS:
            return RetryPolicy.delay_s(self, attempt, error, is_repeatable=is_repeatable)
        if attempt == NOTED_ATTEMPT and error.reason not in self.noted_reasons:
            self.noted_reasons.add(error.reason)
            warning_line(f"waiting for the service: {error}")
        left_s = self.timeout_s - sum(_longest_delay_s(before, error) for before in range(attempt))
        return LONG.delay_within_s(left_s, attempt, error, is_repeatable=is_repeatable)


def _longest_delay_s(attempt: int, error: ReputError) -> float:
    return max(min(LONG.delay_max_s, LONG.delay_min_s * 2.0**attempt), error.retry_after or 0.0)


def _option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text)


def connection_options(
    context: typer.Context,
    commitlog: Annotated[
        str | None, _option("HOST:PORT", "CommitLogs, a,b,…; also REPUT_CLIENT_COMMITLOG_TARGET.")
    ] = None,
    indexer: Annotated[str | None, _option("HOST:PORT", "Indexers (a,b,…); also REPUT_CLIENT_INDEXER_TARGET.")] = None,
    janitor: Annotated[str | None, _option("HOST:PORT", "The Janitor; also REPUT_CLIENT_JANITOR_TARGET.")] = None,
    ca_file: Annotated[
        str | None, _option("FILE", "Authorities, turns TLS on ('system': gRPC's own); REPUT_CLIENT_CA_FILE.")
    ] = None,
    certificate_file: Annotated[
        str | None, _option("FILE", "Certificate to show; REPUT_CLIENT_CERTIFICATE_FILE.")
    ] = None,
    key_file: Annotated[str | None, _option("FILE", "Its private key; REPUT_CLIENT_KEY_FILE.")] = None,
    token_file: Annotated[
        Path | None,
        _option("FILE", "File with a token; REPUT_CLIENT_TOKEN_FILE. [default, on this machine: its user's]"),
    ] = None,
    timeout: Annotated[float | None, _option("SECONDS", "Longest time of one call. [default: 30]")] = None,
) -> None:
    """RocketMQ's message store as three gRPC services: run them, fill them, ask them."""
    token = next(iter(token_file.read_text(encoding="utf-8").split()), "") if token_file is not None else None
    context.obj = {
        "commitlog": commitlog,
        "indexer": indexer,
        "janitor": janitor,
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "token": token,
        "timeout_s": timeout,
    }


def options_of(context: typer.Context) -> Options:
    """Return the options in front of the command.

    What is None comes from the environment, then from the defaults. Without a token it is the user's own if all
    services are on this machine.
    """
    options = Options.load(context.find_root().obj)
    targets = [target for service in ("commitlog", "indexer", "janitor") for target in options.targets(service)]
    token = options.token or find_local_token(targets)
    return replace(options, token=token or "")


def client_of(context: typer.Context, *, is_patient: bool = True) -> Client:
    """Return the client for a command. A client that is not patient does not wait for a service that is starting."""
    return Client(options_of(context), Patience() if is_patient else RetryPolicy(retries=RETRIES))
