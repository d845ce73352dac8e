# SPDX-License-Identifier: Apache-2.0
"""Messages by id while the indexes are built again: what is not there yet is not missing."""

import pytest
from reput.indexer.v1 import query_service_pb2
from reput.indexer.v1.query_service_pb2 import QueryByIdRequest, QueryByIdResponse

from libs.formats.records.message_id import encode_offset_id
from services.indexer.errors import Incomplete, MessageNotFound
from services.indexer.rpc.needs import around
from services.indexer.rpc.query_servicer import QueryServicer
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer


async def test_by_offset_id_during_a_rebuild() -> None:
    """What is indexed again is found, of all else nobody can say that it is not there."""
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
