# SPDX-License-Identifier: Apache-2.0
"""Queries that are refused instead of an early end: while the indexes are rebuilt, and of removed topics."""

import pytest
from reput.indexer.v1 import query_service_pb2
from reput.indexer.v1.query_service_pb2 import (
    QueryByIdRequest,
    QueryByIdResponse,
    QueryByKeyRequest,
    QueryByKeyResponse,
    QueryByTimeRequest,
    QueryByTimeResponse,
)

from libs.formats.records.message_id import encode_offset_id
from libs.requests.errors import TopicNotFound
from services.indexer.errors import Incomplete, MessageNotFound
from services.indexer.rpc.needs import around
from services.indexer.rpc.query_servicer import QueryServicer
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer


async def test_by_offset_id_during_a_rebuild() -> None:
    """During a rebuild an indexed message is found, and a missing message is refused as incomplete."""
    log = FakeLog()
    first, last = log.append(), log.append()
    indexer = make_indexer(log)
    indexer.follow.completeness.lose()
    feed(indexer, log, end=last.physical_offset)
    servicer = QueryServicer(indexer.answers)
    (service,) = query_service_pb2.DESCRIPTOR.services_by_name.values()
    block = around(service, indexer.follow.completeness)["QueryById"]

    async def query(message_id: str) -> QueryByIdResponse:
        with block():
            return QueryByIdResponse.FromString(await servicer.QueryById(QueryByIdRequest(message_id=message_id), None))

    ids = [encode_offset_id(made.store_host, made.physical_offset) for made in (first, last)]
    assert (await query(ids[0])).message.physical_offset == first.physical_offset
    with pytest.raises(Incomplete):
        await query(ids[1])
    feed(indexer, log)
    await query(ids[1])
    wrong = encode_offset_id(last.store_host, last.physical_offset + 1)
    with pytest.raises(MessageNotFound):
        await query(wrong)


async def test_a_topic_that_goes_between_two_pages() -> None:
    """The next page of a removed topic is refused, because an empty page would be the end of the messages.

    A topic that does not exist is refused, too.
    """
    log = FakeLog()
    for _ in range(3):
        log.append("T", keys="k")
    indexer = make_indexer(log)
    feed(indexer, log)
    servicer = QueryServicer(indexer.answers)
    first = QueryByTimeResponse.FromString(await servicer.QueryByTime(QueryByTimeRequest(topic="T", page_size=2), None))
    assert len(first.messages) == 2
    log.deleted_topics.add("T")
    await indexer.upkeep.removal.remove_unused(dry_run=False)
    with pytest.raises(TopicNotFound):
        await servicer.QueryByTime(QueryByTimeRequest(topic="T", page_size=2, page_token=first.next_page_token), None)
    found = QueryByKeyResponse.FromString(await servicer.QueryByKey(QueryByKeyRequest(topic="T", key="k"), None))
    assert len(found.messages) == 3
    with pytest.raises(TopicNotFound):
        await servicer.QueryByKey(QueryByKeyRequest(topic="nobody-made-it", key="k"), None)
    await indexer.close()
