# SPDX-License-Identifier: Apache-2.0
"""The indexes that a method needs, and its answers while the indexes lack records."""

import pytest
from reput.indexer.v1 import query_service_pb2, queue_service_pb2

from libs.requests.errors import BadArgument
from libs.runtime.trust.roles import rule_of
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.errors import Incomplete, MessageNotFound
from services.indexer.rpc import needs
from tests.support.methods import proto_methods, without_rule


def test_each_method_says_what_it_needs() -> None:
    """The table has all methods that the Indexer serves, and no others.

    A new method without an entry fails here, and at the start. Each service serves the lists of audit and connections.
    """
    served = ("reput.indexer.", "reput.common.v1.")
    indexers = {method.full_name for method in proto_methods() if method.full_name.startswith(served)}
    assert {method.full_name for method in proto_methods() if rule_of(method).needs} == indexers


def test_a_method_that_was_forgotten_is_not_served() -> None:
    """A method without an entry fails the start of the process."""
    (service,) = queue_service_pb2.DESCRIPTOR.services_by_name.values()
    with pytest.raises(AssertionError, match=r"QueueService: the protos do not say what \{'Pull'\} need"):
        needs.around(without_rule(service.methods_by_name["Pull"]), Completeness())


def test_what_is_found_counts() -> None:
    """While the indexes are incomplete, a missing message is Incomplete, and a found message is an answer."""
    (service,) = query_service_pb2.DESCRIPTOR.services_by_name.values()
    completeness = Completeness()
    blocks = needs.around(service, completeness)
    completeness.lose(100)
    with pytest.raises(Incomplete), blocks["QueryByKey"]():
        pytest.fail("it must not begin")
    with blocks["QueryById"]() as verify:
        verify()
    with pytest.raises(BadArgument), blocks["QueryById"]():
        raise BadArgument("is wrong", field="message_id")
    with pytest.raises(Incomplete), blocks["QueryById"]():
        raise MessageNotFound("it")
    completeness.reach(100, is_end=False)
    with pytest.raises(MessageNotFound), blocks["QueryById"]():
        raise MessageNotFound("it")
