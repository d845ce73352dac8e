# SPDX-License-Identifier: Apache-2.0
"""FastStream's test classes for brokers, with ReputBroker. The docstring of a class tells whether it has a store."""

from typing import Any

import pytest
from faststream import BaseMiddleware
from faststream_reput import (
    ReputBroker,
    ReputPublishCommand,
    ReputRoute,
    ReputRoutePublisher,
    TestReputBroker,
)
from faststream_reput.testing import FakeProducer
from tests.brokers.base.codec import BatchCodecTestcase, CodecTestcase
from tests.brokers.base.connection import BrokerConnectionTestcase
from tests.brokers.base.consume import BrokerRealConsumeTestcase
from tests.brokers.base.include_router import IncludePublisherTestcase, IncludeSubscriberTestcase
from tests.brokers.base.middlewares import ExceptionMiddlewareTestcase, MiddlewaresOrderTestcase, MiddlewareTestcase
from tests.brokers.base.parser import CustomParserTestcase
from tests.brokers.base.publish import BrokerPublishTestcase
from tests.brokers.base.publish_command import BatchPublishCommandTestcase
from tests.brokers.base.requests import RequestsTestcase
from tests.brokers.base.router import RouterLocalTestcase, RouterTestcase
from tests.brokers.base.testclient import BrokerTestclientTestcase
from tests.brokers.reput.basic import InTest, OverStore


class Doubling(BaseMiddleware):
    """Doubles every message that is received and every message that is published."""

    async def on_receive(self) -> None:
        """Double the body of the raw message, as the test class expects it."""
        stored = self.msg.message
        self.msg.message = Changed(stored, stored.body * 2)

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        """Double the decoded message."""
        msg.body *= 2
        return await call_next(msg)


class Changed:
    """A stored message with another body."""

    def __init__(self, stored: Any, body: bytes) -> None:
        self._stored, self.body = stored, body

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stored, name)


class TestConsume(OverStore, BrokerRealConsumeTestcase):
    """The store."""


class TestPublish(OverStore, BrokerPublishTestcase):
    """The store."""


class TestRouter(OverStore, RouterTestcase):
    """The store."""

    route_class, publisher_class = ReputRoute, ReputRoutePublisher


class TestRouterLocal(InTest, RouterLocalTestcase):
    """TestReputBroker."""

    route_class, publisher_class = ReputRoute, ReputRoutePublisher


class TestCustomParser(OverStore, CustomParserTestcase):
    """The store."""


class TestMiddlewares(OverStore, MiddlewareTestcase):
    """The store."""


class TestExceptionMiddleware(OverStore, ExceptionMiddlewareTestcase):
    """The store."""


class TestMiddlewaresOrder(InTest, MiddlewaresOrderTestcase):
    """TestReputBroker, as with FastStream's own brokers."""


class TestRequests(OverStore, RequestsTestcase):
    """The store."""

    def get_middleware(self, **options: Any) -> Any:
        """See FastStream."""
        return Doubling


class TestRequestsLocal(InTest, RequestsTestcase):
    """TestReputBroker."""

    def get_middleware(self, **options: Any) -> Any:
        """See FastStream."""
        return Doubling


class TestCodec(InTest, CodecTestcase):
    """TestReputBroker, as with FastStream's own brokers."""


class TestBatchCodec(InTest, BatchCodecTestcase):
    """TestReputBroker, as with FastStream's own brokers."""


class TestConnection(BrokerConnectionTestcase):
    """The store."""

    broker = ReputBroker

    @pytest.fixture(autouse=True)
    def settings(self, reput_processes: Any) -> Any:
        """Let the broker find the store."""
        return reput_processes


class TestIncludeSubscriber(InTest, IncludeSubscriberTestcase):
    """No connection."""


class TestIncludePublisher(InTest, IncludePublisherTestcase):
    """No connection."""


class TestPublishCommand(BatchPublishCommandTestcase):
    """No connection."""

    publish_command_cls = ReputPublishCommand


class TestTestclient(InTest, BrokerTestclientTestcase):
    """TestReputBroker, and the store for tests with `with_real`."""

    @pytest.fixture
    def fake_producer_cls(self) -> type:
        """Return the producer of TestReputBroker."""
        return FakeProducer

    def get_fake_producer_class(self) -> type:
        """See FastStream."""
        return FakeProducer


def test_the_test_broker_is_found_by_its_broker() -> None:
    """FastStream's `TestApp` finds TestReputBroker by the class of a broker."""
    from faststream._internal.testing.broker import find_test_broker

    assert find_test_broker(ReputBroker(group="g")) is TestReputBroker
