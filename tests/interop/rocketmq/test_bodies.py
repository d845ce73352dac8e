# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies between RocketMQ's client and the Python client, both ways."""

import subprocess

import pytest
from reput_client.core.body_codecs import LEVELS
from reput_client.core.compression import FLAGS, Compressor, inflate

from tests.interop.rocketmq.rocketmq_store import command

pytestmark = pytest.mark.interop
BODIES = {"small": b"a body " * 10, "large": b"".join(b"line %d\n" % number for number in range(100_000))}


def rocketmq(verb: str, codec: str, body: bytes) -> bytes:
    """Return the body that RocketMQ's client makes of a body: `pack` or `open`."""
    return subprocess.run([*command("5"), verb, codec], input=body, capture_output=True, check=True).stdout


@pytest.mark.parametrize("size", BODIES)
@pytest.mark.parametrize("codec", LEVELS)
def test_both_ways(codec: str, size: str) -> None:
    """A body that RocketMQ compressed is inflated here, and a body that was compressed here is inflated by RocketMQ."""
    body = BODIES[size]
    packed = rocketmq("pack", codec, body)
    assert len(packed) < len(body)
    assert inflate(packed, FLAGS[codec], size_bytes_max=len(body), place="") == body
    for level in {LEVELS[codec].first, LEVELS[codec].default, LEVELS[codec].last}:
        packed, sys_flag = Compressor(codec, 0, level).pack(body)
        assert sys_flag == FLAGS[codec]
        assert rocketmq("open", codec, packed) == body
