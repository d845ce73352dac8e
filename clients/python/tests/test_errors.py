# SPDX-License-Identifier: Apache-2.0
"""Errors carry the details of the server. Only temporary failures are retried."""

import random

import grpc
import pytest
import reput_client
from google.rpc import error_details_pb2, status_pb2
from reput_client import RetryPolicy
from reput_client.core.errors import from_rpc_error, from_status
from reput_client.core.retry import is_passing

from clients.python.tests.support import status

CODES = [
    (grpc.StatusCode.INVALID_ARGUMENT, reput_client.InvalidArgumentError),
    (grpc.StatusCode.NOT_FOUND, reput_client.NotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, reput_client.AlreadyExistsError),
    (grpc.StatusCode.OUT_OF_RANGE, reput_client.OutOfRangeError),
    (grpc.StatusCode.FAILED_PRECONDITION, reput_client.FailedPreconditionError),
    (grpc.StatusCode.UNAUTHENTICATED, reput_client.AuthenticationError),
    (grpc.StatusCode.PERMISSION_DENIED, reput_client.AuthenticationError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, reput_client.ResourceExhaustedError),
    (grpc.StatusCode.UNAVAILABLE, reput_client.UnavailableError),
    (grpc.StatusCode.DEADLINE_EXCEEDED, reput_client.DeadlineExceededError),
    (grpc.StatusCode.ABORTED, reput_client.AbortedError),
    (grpc.StatusCode.DATA_LOSS, reput_client.DataLossError),
    (grpc.StatusCode.INTERNAL, reput_client.ServerError),
    (grpc.StatusCode.UNIMPLEMENTED, reput_client.ServerError),
]


@pytest.mark.parametrize(("code", "kind"), CODES, ids=lambda value: getattr(value, "name", None))
def test_code_decides_the_class(code: grpc.StatusCode, kind: type) -> None:
    """Each code has a class, and all details arrive."""
    error = from_status(status(code, "SOME_REASON", metadata={"a": "b"}, field="messages[3].body", retry_after_s=1.5))
    assert type(error) is kind
    assert (error.code, error.reason, error.metadata) == (code, "SOME_REASON", {"a": "b"})
    assert (error.fields, error.retry_after) == (("messages[3].body",), 1.5)
    assert str(error) == "SOME_REASON: because of SOME_REASON"


def test_foreign_details_are_left_out() -> None:
    """An ErrorInfo of another domain is no reason of Reput."""
    foreign = status_pb2.Status(code=14, message="no")
    foreign.details.add().Pack(error_details_pb2.ErrorInfo(reason="X", domain="example.com"))
    error = from_status(foreign)
    assert (type(error), error.reason, str(error)) == (reput_client.UnavailableError, "", "UNAVAILABLE: no")


def test_broken_details() -> None:
    """A call whose details are no Status still gives its plain code and text."""

    class Failed(grpc.RpcError):
        def trailing_metadata(self):
            return (("grpc-status-details-bin", b"\xff\xff"),)

        def code(self):
            return grpc.StatusCode.NOT_FOUND

        def details(self):
            return "gone"

    assert str(from_rpc_error(Failed(), "indexer")) == "NOT_FOUND: gone"


def test_a_reason_that_got_lost() -> None:
    """A stream that broke while a request was written gives UnavailableError, though gRPC says INTERNAL."""

    class Failed(grpc.RpcError):
        def trailing_metadata(self):
            return None

        def code(self):
            return grpc.StatusCode.INTERNAL

        def details(self):
            return "Internal error from Core"

    assert type(from_rpc_error(Failed(), "commitlog")) is reput_client.UnavailableError


RETRIES = [
    (grpc.StatusCode.UNAVAILABLE, "", True, True),
    (grpc.StatusCode.UNAVAILABLE, "", False, False),
    (grpc.StatusCode.UNAVAILABLE, "RECOVERING", False, True),
    (grpc.StatusCode.UNAVAILABLE, "STORE_REPLACED", False, True),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", True, True),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "WINDOW_FULL", True, True),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "", True, False),
    (grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMENT", True, False),
    (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND", True, False),
    (grpc.StatusCode.FAILED_PRECONDITION, "STORE_SEALED", True, False),
    (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", True, False),
    (grpc.StatusCode.INTERNAL, "INTERNAL", True, False),
]


@pytest.mark.parametrize(("code", "reason", "is_repeatable", "expected"), RETRIES)
def test_what_is_retried(code: grpc.StatusCode, reason: str, is_repeatable: bool, expected: bool) -> None:
    """Temporary reasons are retried. Without a reason only repeatable calls, and bad arguments never."""
    delay_s = RetryPolicy().delay_s(0, from_status(status(code, reason)), is_repeatable=is_repeatable)
    assert (delay_s is not None) is expected


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", True),
        (grpc.StatusCode.CANCELLED, "", True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", False),
        (grpc.StatusCode.ALREADY_EXISTS, "WRITER_CONTENT_DIFFERS", False),
    ],
)
def test_what_may_be_tried_again_whatever_became_of_it(code: grpc.StatusCode, reason: str, expected: bool) -> None:
    """Temporary reasons, and codes after which the outcome is unknown."""
    assert is_passing(from_status(status(code, reason))) is expected


def test_delays() -> None:
    """Delays double up to the limit, jitter takes off a half at most, and the server's wish is the least."""
    policy = RetryPolicy(retries=5, delay_min_s=1, delay_max_s=8, chance=random.Random(1).random)
    passing = from_status(status(grpc.StatusCode.UNAVAILABLE, "STOPPING"))
    delays = [policy.delay_s(attempt, passing) for attempt in range(6)]
    assert delays[5] is None
    for delay, ceiling in zip(delays, (1, 2, 4, 8, 8), strict=False):
        assert ceiling / 2 <= delay <= ceiling
    patient = from_status(status(grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_s=30))
    assert policy.delay_s(0, patient) == 30
    assert RetryPolicy(retries=0).delay_s(0, passing) is None
