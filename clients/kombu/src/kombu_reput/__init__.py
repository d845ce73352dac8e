# SPDX-License-Identifier: Apache-2.0
"""A transport of Kombu over Reput, so that Celery runs on Reput: importing this module makes `reput://` known."""

from kombu.transport import TRANSPORT_ALIASES

from kombu_reput.channel import Channel
from kombu_reput.transport import Transport

__all__ = ["Channel", "Transport"]

TRANSPORT_ALIASES["reput"] = "kombu_reput:Transport"
