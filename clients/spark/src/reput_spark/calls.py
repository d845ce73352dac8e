# SPDX-License-Identifier: Apache-2.0
"""Calls over the Python client's channels, with the retries of the data source's options.

Invariant: no channel is made before the first call of a process, and no channel is used across a fork or a pickle.
Channels are kept per process and options, because a Python worker of Spark runs many tasks.
This module is imported where it is used, like all modules that need `reput_client`: see source.py.
"""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from grpc import StatusCode
from reput_client.core.call import Call, method_of
from reput_client.core.errors import ReputError
from reput_client.core.options import Options, first_token
from reput_client.core.retry import RetryPolicy, is_passing
from reput_client.sync.channels import Channels

from reput_spark.errors import BadOption, CallFailed

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from reput_spark.values import CallOptions

RETRY_INTERVAL_S_MAX = 30.0
BEYOND_END = "OFFSET_BEYOND_END"
REACH_RETRY_COUNT = 2
"""Retries of the first call of a batch: a service that is down is reported within some seconds."""
SERVICES = {"commitlog": ("CommitLog", "commitlog.endpoint"), "indexer": ("Indexer", "endpoint")}
"""The name of a service for people, and the option that has its addresses."""
ONCE = RetryPolicy(retries=0)
"""The channels do not retry: Attempts does, and uses the next server each time."""

T = TypeVar("T")
_channels: dict[tuple[int, Options], Channels] = {}
"""The channels of this process, and of the process that it was forked from, by process id and options."""
_answered: dict[tuple[str, ...], str] = {}
"""The server that answered last, by the list of servers. The next call begins with it."""


def run(options: CallOptions, call: Call[T]) -> T:
    """Run a call, with retries while no server can be reached. Raises CallFailed."""
    attempts = Attempts(options, call.method.path)
    while True:
        try:
            found = attempts.channels().run(call)
        except ReputError as error:
            attempts.failed(error)
        else:
            attempts.answered()
            return found


def check_reach(options: CallOptions, request: Message) -> None:
    """Check that a server of the list answers, unless this process has had an answer. Raises CallFailed if none does.

    For the driver, before a batch begins. Any answer is sufficient, also a refusal.
    """
    if options.endpoints in _answered:
        return
    retry_count = min(options.retry_count_max, max(REACH_RETRY_COUNT, len(options.endpoints) - 1))
    attempts = Attempts(replace(options, retry_count_max=retry_count), method_of(request.DESCRIPTOR).path)
    while True:
        try:
            attempts.channels().run(Call(request))
        except ReputError as error:
            if not is_away(error):
                return
            attempts.failed(error)
        else:
            attempts.answered()
            return


class Attempts:
    """A call with its retries: the next server, the delay, and the end of the retries."""

    def __init__(self, options: CallOptions, path: str) -> None:
        interval_s = options.retry_interval_ms / 1000
        self.retry = RetryPolicy(options.retry_count_max, interval_s, RETRY_INTERVAL_S_MAX)
        self._options, self._path = options, path
        self._failure_count = 0
        self._endpoints = itertools.cycle(options.endpoints)
        first = _answered.get(options.endpoints, options.endpoints[0])
        self.endpoint = next(endpoint for endpoint in self._endpoints if endpoint == first)
        """Address of the next attempt."""

    def channels(self) -> Channels:
        """Return the channels of the next attempt. Raises BadOption."""
        return channels_to(self._options, self.endpoint)

    def answered(self) -> None:
        """Record an answer: the number of failures becomes 0, and later calls begin with this server."""
        self._failure_count = 0
        _answered[self._options.endpoints] = self.endpoint

    def failed(self, error: ReputError) -> None:
        """Wait before the next attempt after a failed attempt. Raises CallFailed if no attempt is left."""
        endpoint = self.endpoint
        if not self.goes_on(error):
            raise failure(self._path, endpoint, error) from None

    def goes_on(self, error: ReputError) -> bool:
        """Wait before the next attempt, at the next server. Returns False without a wait if no attempt is left."""
        # An Indexer that was restarted, or that indexes another log, may lack entries that the plan has.
        may_pass = is_passing(error) or error.reason == BEYOND_END
        delay_s = self.retry.backoff_s(self._failure_count, error) if may_pass else None
        if delay_s is None:
            return False
        self._failure_count += 1
        self.go_on()
        time.sleep(delay_s)
        return True

    def go_on(self) -> None:
        """Use the next server for the next attempt."""
        self.endpoint = next(self._endpoints)


def failure(path: str, endpoint: str, error: ReputError) -> CallFailed:
    """Return the error for a call that failed for good."""
    details = f"{error.reason}: {error.text}" if error.reason else error.text
    if is_away(error):
        service, option = SERVICES[method_service(path)]
        question = f"is the {service} running (`reput up`), and is its address right (option {option!r})?"
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
