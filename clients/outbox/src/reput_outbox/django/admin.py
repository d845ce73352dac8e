# SPDX-License-Identifier: Apache-2.0
"""A listing of the outbox for Django's admin, to read: the relay changes the rows."""

from typing import Any

from django.contrib import admin

from reput_outbox.django.models import Message


@admin.register(Message)
class MessageAdmin(admin.ModelAdmin):
    """Messages, newest first."""

    list_display = ("id", "topic", "order_key", "state", "attempts", "reason")
    list_filter = ("state", "topic")
    ordering = ("-id",)

    def has_add_permission(self, *_: Any, **__: Any) -> bool:
        """Refuse: messages are added by `outbox.send`."""
        return False

    def has_change_permission(self, *_: Any, **__: Any) -> bool:
        """Refuse: the relay changes messages."""
        return False

    def has_delete_permission(self, *_: Any, **__: Any) -> bool:
        """Refuse: `reput-outbox discard` deletes a refused message."""
        return False
