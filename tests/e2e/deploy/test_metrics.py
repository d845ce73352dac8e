# SPDX-License-Identifier: Apache-2.0
"""The metrics of each service keep Prometheus' conventions."""

import pytest
from prometheus_client import generate_latest

from tests.e2e.deploy.commands import run, tool
from tools.gen_metrics_docs import SERVICES, registry


@pytest.mark.parametrize("service", SERVICES)
async def test_promtool_has_no_remark(service: str) -> None:
    """Names, units, types and help of all families."""
    promtool = tool("promtool")
    told = run(promtool, "check", "metrics", stdin=generate_latest(registry(service)).decode())
    assert not told.stdout + told.stderr
