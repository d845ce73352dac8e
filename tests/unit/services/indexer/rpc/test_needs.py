# SPDX-License-Identifier: Apache-2.0
"""The indexes that a method needs, and its answers while the indexes lack records."""

import pytest
from reput.indexer.v1 import query_service_pb2, queue_service_pb2

from libs.requests.errors import BadArgument
from services.indexer.engine.follow.completeness import Completeness
from services.indexer.errors import Incomplete, MessageNotFound
from services.indexer.rpc import needs
from tests.support.methods import proto_methods


def test_each_method_says_what_it_needs() -> None:
    """The table has all methods of the Indexer's services, and no others.

    A new method without an entry fails here, and at the start.
    """
    methods = [method for method in proto_methods() if method.full_name.startswith("reput.indexer.")]
    assert {f"{method.containing_service.name}/{method.name}" for method in methods} == needs.NEEDS.keys()


def test_a_method_that_was_forgotten_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method without an entry fails the start of the process."""
    monkeypatch.delitem(needs.NEEDS, "QueueService/Pull")
    (service,) = queue_service_pb2.DESCRIPTOR.services_by_name.values()
    with pytest.raises(AssertionError, match="QueueService/Pull"):
        needs.around(service, Completeness())


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
