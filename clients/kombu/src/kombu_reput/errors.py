# SPDX-License-Identifier: Apache-2.0
"""Errors: which failures of calls end a connection, and which only a channel."""

from reput_client import (
    AbortedError,
    AlreadyExistsError,
    AuthenticationError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    ServerError,
    UnavailableError,
)


class NotDurableError(ConnectionError):
    """A message is stored, but not as durably as asked for within the time of a call."""


CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    NotDurableError,
    UnavailableError,
    DeadlineExceededError,
    ResourceExhaustedError,
    AbortedError,
    AuthenticationError,
    ServerError,
)
"""Failures after which a caller connects again: they may pass."""

CHANNEL_ERRORS: tuple[type[Exception], ...] = (
    InvalidArgumentError,
    NotFoundError,
    AlreadyExistsError,
    OutOfRangeError,
    FailedPreconditionError,
)
"""Failures that a new connection does not cure."""
