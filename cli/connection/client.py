# SPDX-License-Identifier: Apache-2.0
"""The client for a command: made of the options before the command, after a listener was found.

reput_client, and gRPC with it, is imported when a client is made: help texts and usage errors need not wait for it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from cli.connection.addresses import WAIT_S, away_text, is_reached, stranger_text, targets_of, wait_listening
from cli.connection.contexts import environment_of
from cli.exit_codes import CommandFailed, ExitCode
from libs.service_names import OF_EVERY_STORE, SERVICES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reput_client import Client, Options, RetryPolicy

NO_CONNECTION = ("failed to connect to all addresses", "DNS resolution failed", "errors resolving")
"""Begins of gRPC's texts for a call that found no connection; its codes do not show it."""


def options_of(context: typer.Context) -> Options:
    """Return the options before the command, with addresses of valid syntax. Raises BadParameter.

    An option that is None comes from the environment, then from the context in use, then from the defaults. Without a
    token the user's own token is used if all services are on this machine.
    """
    given = context.find_root().obj
    targets_by_service = targets_of(given)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the error has more than its log lines
    from reput_client import Options

    from libs.runtime.trust.tokens import find_local_token

    arguments = {name: value for name, value in given.items() if name != "context"}
    options = Options.load(arguments, environment_of(given))
    targets = [target for targets in targets_by_service.values() for target in targets]
    token = options.token or find_local_token(targets)
    return replace(options, token=token or "")


@contextmanager
def client_of(context: typer.Context, *services: str) -> Iterator[Client]:
    """Make a client for a command that calls these services first. Raises CommandFailed if any is not there.

    It waits for a service that is starting, and on this machine two seconds for a service at whose address no process
    listens.
    """
    targets = targets_of(context.find_root().obj)
    for service in services:
        wait_listening(service, targets, WAIT_S)
    options = options_of(context)
    from cli.connection.patience import Patience

    with explained(options, services), new_client(options, Patience()) as client:
        yield client


def new_client(options: Options, retry: RetryPolicy) -> Client:
    """Return a client, without a check whether a process listens."""
    from reput_client import Client

    return Client(options, retry)


@contextmanager
def explained(options: Options, services: Sequence[str]) -> Iterator[None]:
    """Replace gRPC's text for a missing connection to the services that the block calls."""
    from reput_client import UnavailableError

    try:
        yield
    except UnavailableError as error:
        if not error.text.startswith(NO_CONNECTION):
            raise
        targets = {service: options.targets(service) for service in SERVICES}
        texts = (
            stranger_text(service, targets) if any(map(is_reached, targets[service])) else away_text(service, targets)
            for service in services_meant(options, error.text, services)
        )
        text = "; ".join(dict.fromkeys(texts))  # services at the same address have the same text
        raise CommandFailed("UNAVAILABLE", text, code=ExitCode.UNAVAILABLE) from error


def services_meant(options: Options, text: str, services: Sequence[str]) -> Sequence[str]:
    """Return the services whose ports gRPC's text names, else the services that the command calls first."""
    named = [
        service
        for service in SERVICES
        if any(f":{target.rpartition(':')[2]}:" in f"{text}:" for target in options.targets(service))
    ]
    return named or services or OF_EVERY_STORE
