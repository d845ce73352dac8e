# SPDX-License-Identifier: Apache-2.0
"""The trace of a message that a client of any language sends, as a collector receives it."""

from pathlib import Path

import pytest

from tests.clients import drivers
from tests.support.reput_up import store
from tests.support.span_collector import collecting

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-01"
UNSAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.mark.parametrize("language", drivers.LANGUAGES)
async def test_one_message_is_one_trace_from_each_language(tmp_path: Path, language: str) -> None:
    """Its append and the answer with it are spans of its sender's trace, and its receiver gets the same context."""
    try:
        command = drivers.LANGUAGES[language]()
    except drivers.Missing as missing:
        pytest.skip(f"{missing} is not there")
    with collecting() as (collector, port):
        settings = {
            f"REPUT_{service}_{name}": value
            for service in ("COMMITLOG", "INDEXER")
            for name, value in (("OTLP_ENDPOINT", f"http://127.0.0.1:{port}"), ("TRACE_RATIO", "0"))
        }
        with store(tmp_path / "store", extra=settings) as served:
            targets = {name: served.targets[name] for name in ("commitlog", "indexer")}
            async with drivers.running(command) as driver:
                assert await driver.ask({"do": "connect", **targets}) == {"ok": {}}
                for context in (UNSAMPLED, SAMPLED):
                    sent = {"topic": "orders", "body": "hello", "queue_id": 0, "properties": {"traceparent": context}}
                    stored = (await driver.ask({"do": "send", **sent}))["ok"]
                    assert await driver.ask({"do": "wait_indexed"}) == {"ok": {}}
                    found = await driver.ask({"do": "query_by_id", "id": stored["unique_id"], "topic": "orders"})
                    assert found["ok"]["properties"]["traceparent"] == context
                read = await driver.ask({"do": "consume", "topic": "orders", "count": 2, "timeout_s": 60})
                assert read.get("ok", {}).get("bodies") == ["hello", "hello"], read
            expected = {
                ("reput-commitlog", "reput.commitlog.v1.AppendService/AppendStream"),
                ("reput-indexer", "reput.indexer.v1.QueueService/Subscribe"),
            }
            assert collector.wait_for(expected), collector.spans
    assert collector.spans.keys() == {bytes.fromhex(TRACE_ID)}
