# SPDX-License-Identifier: Apache-2.0
"""FastStream's test classes for AsyncAPI descriptions, in both versions, with ReputBroker."""

from faststream_reput import ReputBroker, ReputRoute, ReputRoutePublisher, ReputRouter
from tests.asyncapi.base.v2_6_0.arguments import ArgumentsTestcase as Arguments2
from tests.asyncapi.base.v2_6_0.naming import NamingTestCase as Naming2
from tests.asyncapi.base.v2_6_0.publisher import PublisherTestcase as Publisher2
from tests.asyncapi.base.v2_6_0.router import RouterTestcase as Router2
from tests.asyncapi.base.v3_0_0.arguments import ArgumentsTestcase as Arguments3
from tests.asyncapi.base.v3_0_0.naming import NamingTestCase as Naming3
from tests.asyncapi.base.v3_0_0.publisher import PublisherTestcase as Publisher3
from tests.asyncapi.base.v3_0_0.router import RouterTestcase as Router3


class TestArguments26(Arguments2):
    """AsyncAPI 2.6."""

    broker_class = ReputBroker


class TestArguments30(Arguments3):
    """AsyncAPI 3.0."""

    broker_class = ReputBroker


class TestNaming26(Naming2):
    """AsyncAPI 2.6."""

    broker_class = ReputBroker


class TestNaming30(Naming3):
    """AsyncAPI 3.0."""

    broker_class = ReputBroker


class TestPublisher26(Publisher2):
    """AsyncAPI 2.6."""

    broker_class = ReputBroker


class TestPublisher30(Publisher3):
    """AsyncAPI 3.0."""

    broker_class = ReputBroker


class TestRouter26(Router2):
    """AsyncAPI 2.6."""

    broker_class, router_class = ReputBroker, ReputRouter
    route_class, publisher_class = ReputRoute, ReputRoutePublisher


class TestRouter30(Router3):
    """AsyncAPI 3.0."""

    broker_class, router_class = ReputBroker, ReputRouter
    route_class, publisher_class = ReputRoute, ReputRoutePublisher
