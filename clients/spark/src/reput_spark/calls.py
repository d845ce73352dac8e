# SPDX-License-Identifier: Apache-2.0
"""Calls over the Python client's channels, with the retries that the options of Spark ask for.

Invariant: no channel is made before the first call of a process, and none crosses a fork or a pickle: they are kept per
process and options, because Spark's Python workers live on from task to task.
Imported where it is used, as is all that needs `reput_client`: see source.py.
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
"""Retries of the first call of a batch: a service that is down is told within some seconds."""
SERVICES = {"commitlog": ("CommitLog", "commitlog.endpoint"), "indexer": ("Indexer", "endpoint")}
"""What people call a service, and the option that has its addresses."""
ONCE = RetryPolicy(retries=0)
"""Channels leave retries to Attempts, which goes from one server to the next."""

T = TypeVar("T")
_channels: dict[tuple[int, Options], Channels] = {}
"""Those of this process, and of the one that it was forked from."""
_answered: dict[tuple[str, ...], str] = {}
"""Which server of a list answered last: the next call begins there."""


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
    """Ask any of the servers something, unless one has answered this process before. Raises CallFailed if all are away.

    For the driver, before a batch begins. An answer of any kind will do.
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
    """One call with its retries: which server is next, how long to wait, when to give up."""

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
        """Note that an answer came: failures before it don't count any more."""
        self._failure_count = 0
        _answered[self._options.endpoints] = self.endpoint

    def failed(self, error: ReputError) -> None:
        """Wait before the next attempt after a failed one. Raises CallFailed if there is none."""
        endpoint = self.endpoint
        if not self.goes_on(error):
            raise failure(self._path, endpoint, error) from None

    def goes_on(self, error: ReputError) -> bool:
        """Wait before the next attempt, at the next server. Returns whether there is one."""
        # An Indexer that was restarted, or follows another log, may not have yet what the plan had seen.
        may_pass = is_passing(error) or error.reason == BEYOND_END
        delay_s = self.retry.backoff_s(self._failure_count, error) if may_pass else None
        if delay_s is None:
            return False
        self._failure_count += 1
        self.go_on()
        time.sleep(delay_s)
        return True

    def go_on(self) -> None:
        """Let the next attempt be at the next server."""
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
    """Return the channels of this process to a server, with the credentials of now. Raises BadOption."""
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
