# SPDX-License-Identifier: Apache-2.0
"""`manage.py reput_outbox_relay`: sends the outbox until it is stopped."""

from typing import Any

from django.core.management.base import BaseCommand

from reput_outbox.django.database import DjangoDatabase, alias, relay_settings
from reput_outbox.relay import Relay, run_until_signal


class Command(BaseCommand):
    """The command."""

    help = "Send the messages of the outbox to Reput until SIGINT or SIGTERM."

    def handle(self, *_: Any, **__: Any) -> None:
        """Run the relay."""
        run_until_signal(Relay(DjangoDatabase(alias()), relay_settings()))
