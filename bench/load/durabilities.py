# SPDX-License-Identifier: Apache-2.0
"""The durability that a load asks for in each mode."""

from collections.abc import Mapping

from reput.common.v1 import message_pb2

DURABILITIES: Mapping[str, message_pb2.Durability.ValueType] = {
    "async": message_pb2.DURABILITY_MEMORY,
    "sync": message_pb2.DURABILITY_LOCAL_DISK,
    "replicated": message_pb2.DURABILITY_REPLICATED,
}
