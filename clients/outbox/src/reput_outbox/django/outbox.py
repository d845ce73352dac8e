# SPDX-License-Identifier: Apache-2.0
"""`send`: writes a message in the present transaction."""

from typing import Unpack

from django.db import connections

from reput_outbox.core.errors import OutboxError
from reput_outbox.core.rows import Fields, make_entry
from reput_outbox.django.database import alias, notify, table_of


def send(topic: str, body: bytes, **fields: Unpack[Fields]) -> str:
    """Write a message in the present transaction, and return its unique id. It is sent if the transaction commits.

    Messages of a topic with the same `key` are stored in order. Raises OutboxError for a wrong field, and outside of
    `transaction.atomic`.
    """
    using = alias()
    if not connections[using].in_atomic_block:
        raise OutboxError(f"outbox.send belongs into transaction.atomic(using={using!r}), with the change it tells of")
    entry = make_entry(topic, body, **fields)
    table_of(using).add(entry)
    notify(using)
    return entry.uid
