# SPDX-License-Identifier: Apache-2.0
"""What a load asks for in each mode."""

from collections.abc import Mapping

from reput.common.v1 import message_pb2

from bench.peers.peer import Durability

DURABILITIES: Mapping[Durability, message_pb2.Durability.ValueType] = {
    "async": message_pb2.DURABILITY_MEMORY,
    "sync": message_pb2.DURABILITY_LOCAL_DISK,
}
