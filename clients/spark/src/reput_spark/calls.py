# SPDX-License-Identifier: Apache-2.0
"""Calls over the Python client's channels, with the retries of the data source's options.

Invariant: no channel is made before the first call of a process, and no channel is used across a fork or a pickle.
Channels are kept per process and options, because a Python worker of Spark runs many tasks.
This module is imported where it is used, like all modules that need `reput_client`: see source.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from grpc import StatusCode
from reput_client.core.call import Call, method_of
from reput_client.core.errors import ReputError
from reput_client.core.options import Options, first_token
from reput_client.core.retry import RetryPolicy
from reput_client.frames import calls as client_calls
from reput_client.frames.calls import ONCE, Attempts, BadAnswerError, CallEnded, Servers
from reput_client.sync.channels import Channels

from reput_spark.errors import BadAnswer, BadOption, CallFailed

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from reput_spark.values import CallOptions

RETRY_INTERVAL_S_MAX = 30.0
REACH_RETRY_COUNT = 2
"""Retries of the first call of a batch: a service that is down is reported within some seconds."""
SERVICES = {"commitlog": ("CommitLog", "commitlog.endpoint"), "indexer": ("Indexer", "endpoint")}
"""The name of a service for people, and the option that has its addresses."""

T = TypeVar("T")
_channels: dict[tuple[int, Options], Channels] = {}
"""The channels of this process, and of the process that it was forked from, by process id and options."""


def run(options: CallOptions, call: Call[T]) -> T:
    """Run a call, with retries while no server can be reached. Raises CallFailed."""
    with told():
        return client_calls.run(servers(options), call)


def servers(options: CallOptions) -> Servers:
    """Return the servers of the options, as the client's reader takes them."""
    retry = RetryPolicy(options.retry_count_max, options.retry_interval_ms / 1000, RETRY_INTERVAL_S_MAX)
    return Servers(options.endpoints, retry, options.rpc_timeout_ms / 1000, lambda name: channels_to(options, name))


@contextmanager
def told() -> Iterator[None]:
    """Raise the errors of the client's reader as CallFailed and BadAnswer, which travel between processes."""
    try:
        yield
    except CallEnded as ended:
        raise failure(ended.path, ended.endpoint, ended.error) from None
    except BadAnswerError as error:
        raise BadAnswer(error.text) from None


def check_reach(options: CallOptions, request: Message) -> None:
    """Check that a server of the list answers, unless this process has had an answer. Raises CallFailed if none does.

    For the driver, before a batch begins. Any answer is sufficient, also a refusal.
    """
    if client_calls.has_answered(servers(options)):
        return
    retry_count = min(options.retry_count_max, max(REACH_RETRY_COUNT, len(options.endpoints) - 1))
    attempts = Attempts(servers(replace(options, retry_count_max=retry_count)), method_of(request.DESCRIPTOR).path)
    while True:
        try:
            attempts.channels().run(Call(request))
        except ReputError as error:
            if not is_away(error):
                return
            with told():
                attempts.failed(error)
        else:
            attempts.answered()
            return


def failure(path: str, endpoint: str, error: ReputError) -> CallFailed:
    """Return the error for a call that failed for good."""
    details = f"{error.reason}: {error.text}" if error.reason else error.text
    if is_away(error):
        service, option = SERVICES[method_service(path)]
        question = f"is the {service} running (`reput up`), and is its address right (option 'store' or {option!r})?"
        details = f"can't be reached; {question} gRPC says: {error.text}"
    return CallFailed(path, endpoint, error.code.name, details)


def is_away(error: ReputError) -> bool:
    """Return whether a call failed because no server was reached."""
    return error.code is StatusCode.UNAVAILABLE and not error.reason


def method_service(path: str) -> str:
    """Return the short name of the service of a method: `indexer` of `reput.indexer.v1.ScanService/Scan`."""
    return path.split(".")[1]


def channels_to(options: CallOptions, endpoint: str) -> Channels:
    """Return the channels of this process to a server, with the current credentials. Raises BadOption."""
    given = {
        "commitlog": endpoint,
        "indexer": endpoint,
        "ca_file": options.tls_ca_file or None,
        "certificate_file": options.tls_cert_file or None,
        "key_file": options.tls_key_file or None,
        "timeout_s": options.rpc_timeout_ms / 1000,
        **({"shard": options.shard} if options.shard else {}),
    }
    try:
        token = first_token(Path(options.auth_token_file)) if options.auth_token_file else None
        chosen = Options.load({**given, "token": token})
    except OSError as error:
        raise BadOption("auth.token.file", str(error)) from error
    if chosen.certificate_file and not chosen.ca_file:
        chosen = replace(chosen, ca_file="system")
    key = os.getpid(), chosen
    if key not in _channels:
        _channels[key] = Channels(chosen, ONCE)
    return _channels[key]
