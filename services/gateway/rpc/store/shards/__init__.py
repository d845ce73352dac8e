# SPDX-License-Identifier: Apache-2.0
"""Several shards behind the gateway, each with the clients of a single store.

routes              TopicRoutes: which shards have a topic, and which queues.
sharded_log         ShardedLog: sends messages to the shards of their queues.
sharded_delivery    ShardedDelivery: receives from all shards, and settles at the shard of each message.
"""
