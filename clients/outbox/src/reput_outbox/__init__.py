# SPDX-License-Identifier: Apache-2.0
"""An outbox for Reput: a message is written in the application's own transaction, and sent exactly once.

`reput_outbox.sqlalchemy` is for SQLAlchemy 2, and `reput_outbox.django` for Django.
"""

from reput_outbox.core.errors import DatabaseTrouble, OutboxError
from reput_outbox.core.metrics import RelayMetrics
from reput_outbox.core.settings import RelaySettings
from reput_outbox.relay import AsyncRelay, Relay

__all__ = ["AsyncRelay", "DatabaseTrouble", "OutboxError", "Relay", "RelayMetrics", "RelaySettings"]
