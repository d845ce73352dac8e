# SPDX-License-Identifier: Apache-2.0
"""grpcurl, as people use it: it has only the address, and gets the rest by reflection."""

import json
from pathlib import Path

import pytest

from tests.conformance import tools
from tests.support.served_commitlog import process

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("front", ["http2", "grpcio"])
async def test_reflection_and_calls(front: str, tmp_path: Path) -> None:
    """Services are listed and described, a message is appended and read back, and a refusal has its reason."""
    program = tools.go_tool(tools.GRPCURL)
    async with process(tmp_path, "--front", front) as service:
        address = f"127.0.0.1:{service.port}"
        listed = (await tools.output_of([program, "-plaintext", address, "list"])).split()
        assert {"reput.commitlog.v1.AppendService", "grpc.health.v1.Health"} <= set(listed)
        described = await tools.output_of([program, "-plaintext", address, "describe", "reput.commitlog.v1.LogService"])
        assert "rpc GetStatus" in described
        append = "reput.commitlog.v1.AppendService/Append"
        request = {"messages": [{"topic": "orders", "body": "aGVsbG8="}]}
        told = await tools.output_of([program, "-plaintext", "-d", json.dumps(request), address, append])
        place = json.loads(told)["result"]["physical_offsets"]
        read = "reput.commitlog.v1.LogService/ReadRecords"
        asked = json.dumps({"physical_offsets": place})
        assert "aGVsbG8=" in await tools.output_of([program, "-plaintext", "-d", asked, address, read])
        wrong = json.dumps({"messages": [{"topic": "no such name!", "body": ""}]})
        refused = [program, "-plaintext", "-d", wrong, address, append]
        assert "InvalidArgument" in await tools.output_of(refused, is_to_succeed=False)
