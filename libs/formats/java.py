# SPDX-License-Identifier: Apache-2.0
"""Two functions of the Java library that affect stored bytes: String.hashCode and the buckets of a HashMap.

Hashes select consume queue units and index slots, so they must agree bit for bit. The map's order decides the order of
properties in a record. Readers do not depend on this order, but byte-identical output does. Spec:
docs/formats/commit_log.md section 5.
"""

HASH_MAP_CAPACITY = 128
"""First capacity of the map from which RocketMQ serialises properties, since 5.1.0; 16 before."""


def string_hash(text: str) -> int:
    """Return String.hashCode: signed 32 bits, over UTF-16 code units (a character beyond the BMP counts as two)."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def hash_map_bucket(name: str, capacity: int = HASH_MAP_CAPACITY) -> int:
    """Return the bucket of a name in a HashMap of this capacity. The map iterates over its buckets in this order."""
    value = string_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (capacity - 1)
