# SPDX-License-Identifier: Apache-2.0
"""The outbox's tables as models. Rows are written by `outbox.send`, and changed by the relay."""

from django.db import models

from reput_outbox.core.rows import KEY_SIZE_MAX, TAG_SIZE_MAX, TOPIC_SIZE_MAX, State


class Message(models.Model):
    """A message that is sent once its transaction has committed."""

    id = models.BigAutoField(primary_key=True)
    uid = models.CharField(max_length=32)
    topic = models.CharField(max_length=TOPIC_SIZE_MAX)
    order_key = models.CharField(max_length=KEY_SIZE_MAX, null=True)
    tag = models.CharField(max_length=TAG_SIZE_MAX, null=True)
    lookup_keys = models.TextField()
    properties = models.TextField()
    body = models.BinaryField()
    size = models.IntegerField()
    created_ms = models.BigIntegerField()
    deliver_at_ms = models.BigIntegerField(null=True)
    state = models.SmallIntegerField(choices=[(state.value, state.name.lower()) for state in State])
    attempts = models.IntegerField()
    reason = models.TextField()
    batch = models.BigIntegerField(null=True)
    sent_ms = models.BigIntegerField(null=True)

    class Meta:
        """The table."""

        db_table = "reput_outbox"
        indexes = (
            models.Index(fields=["state", "id"], name="reput_outbox_state"),
            models.Index(
                fields=["order_key"], condition=models.Q(state__gte=State.REFUSED.value), name="reput_outbox_held"
            ),
        )

    def __str__(self) -> str:
        return f"{self.id} to {self.topic}"


class RelayState(models.Model):
    """The relay's row."""

    id = models.IntegerField(primary_key=True)
    writer_id = models.CharField(max_length=64)
    next_number = models.BigIntegerField()
    base = models.BigIntegerField()
    check_id = models.BigIntegerField()
    holder = models.CharField(max_length=255)
    beat = models.BigIntegerField()
    trouble = models.TextField()

    class Meta:
        """The table."""

        db_table = "reput_outbox_relay"

    def __str__(self) -> str:
        return f"batch {self.next_number} of {self.writer_id}"
