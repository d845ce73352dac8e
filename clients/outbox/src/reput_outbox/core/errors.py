# SPDX-License-Identifier: Apache-2.0
"""Errors of the outbox."""


class OutboxError(Exception):
    """A call that the outbox refuses, with the reason."""


class DatabaseTrouble(OutboxError):
    """The database failed. Its transaction has no effect, or its outcome is unknown."""


class LeaseLost(OutboxError):
    """Another relay took over."""
