# SPDX-License-Identifier: Apache-2.0
"""The app's configuration."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """The outbox."""

    name = "reput_outbox.django"
    label = "reput_outbox"
    verbose_name = "Reput outbox"
    default_auto_field = "django.db.models.BigAutoField"
