# SPDX-License-Identifier: Apache-2.0
"""Decisions of a gateway before several shards, without I/O.

names    Handles and ids that tell their shard.
choice   QueueChoice: the queue of a message without a key.
traffic  ShardTraffic: the messages that each shard takes, and shards that are away.
"""
