# SPDX-License-Identifier: Apache-2.0
"""A broker of FastStream over Reput."""

from faststream_reput.broker.broker import ReputBroker
from faststream_reput.broker.router import ReputRoute, ReputRoutePublisher, ReputRouter
from faststream_reput.messages.delivery import Delivery
from faststream_reput.messages.message import ReputBatchMessage, ReputMessage
from faststream_reput.messages.response import ReputPublishCommand, ReputResponse, Sending
from faststream_reput.publishing.publisher import ReputPublisher
from faststream_reput.subscribing.subscriber import ReputBatchSubscriber, ReputSubscriber
from faststream_reput.testing import TestReputBroker

__all__ = [
    "Delivery",
    "ReputBatchMessage",
    "ReputBatchSubscriber",
    "ReputBroker",
    "ReputMessage",
    "ReputPublishCommand",
    "ReputPublisher",
    "ReputResponse",
    "ReputRoute",
    "ReputRoutePublisher",
    "ReputRouter",
    "ReputSubscriber",
    "Sending",
    "TestReputBroker",
]
