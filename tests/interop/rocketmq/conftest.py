# SPDX-License-Identifier: Apache-2.0
"""Both releases of RocketMQ, compiled, or a failure that names the missing tool, and the size of a run."""

import os

import pytest

from tests.interop.rocketmq.rocketmq_store import RELEASES, ToolMissing, command
from tests.interop.rocketmq.stored import LARGE, Sizes

MESSAGES_DEFAULT = 800
LARGE_RUN_MIN = 20_000


@pytest.fixture(params=list(RELEASES), ids=lambda major: f"rocketmq-{RELEASES[major]}")
def major(request: pytest.FixtureRequest) -> str:
    """Major number of the release, ready to be started."""
    try:
        command(request.param)
    except ToolMissing as missing:
        pytest.fail(str(missing))
    return str(request.param)


@pytest.fixture(scope="session")
def message_count() -> int:
    """The number of messages of a direction. REPUT_INTEROP_MESSAGES sets it."""
    return int(os.environ.get("REPUT_INTEROP_MESSAGES", MESSAGES_DEFAULT))


@pytest.fixture(scope="session")
def sizes(message_count: int) -> Sizes:
    """File sizes that give several files of each kind."""
    return LARGE if message_count >= LARGE_RUN_MIN else Sizes()
