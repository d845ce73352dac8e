# SPDX-License-Identifier: Apache-2.0
"""A store of several shards: the queues of a topic over all shards, and the way of a message to them. No I/O."""
