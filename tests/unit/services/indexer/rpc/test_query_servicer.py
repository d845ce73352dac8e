# SPDX-License-Identifier: Apache-2.0
"""Messages by id while the indexes are built again: what is not there yet is not missing."""

import pytest
from reput.indexer.v1.query_service_pb2 import QueryByIdRequest, QueryByIdResponse

from libs.formats.records.message_id import encode_offset_id
from services.indexer.errors import Incomplete, MessageNotFound
from services.indexer.rpc.query_servicer import QueryServicer
from tests.support.fake_log import FakeLog
from tests.unit.services.indexer.support import feed, make_indexer


async def test_by_offset_id_during_a_rebuild() -> None:
    """What is indexed again is found, of all else nobody can say that it is not there."""
    log = FakeLog()
    first, last = log.append(), log.append()
    indexer = make_indexer(log)
    indexer.completeness.lose()
    feed(indexer, log, end=last.physical_offset)
    servicer = QueryServicer(indexer)
    ids = [encode_offset_id(made.store_host, made.physical_offset) for made in (first, last)]
    found = QueryByIdResponse.FromString(await servicer.QueryById(QueryByIdRequest(message_id=ids[0]), None))
    assert found.message.physical_offset == first.physical_offset
    with pytest.raises(Incomplete):
        await servicer.QueryById(QueryByIdRequest(message_id=ids[1]), None)
    feed(indexer, log)
    await servicer.QueryById(QueryByIdRequest(message_id=ids[1]), None)
    wrong = encode_offset_id(last.store_host, last.physical_offset + 1)
    with pytest.raises(MessageNotFound):
        await servicer.QueryById(QueryByIdRequest(message_id=wrong), None)
