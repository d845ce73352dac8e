# SPDX-License-Identifier: Apache-2.0
"""Replication: the leader sends its log byte by byte; followers check it, write it and acknowledge it.

Leader: `Replicas` holds a `ReplicaStream` for each follower; a `ChunkReader` reads the chunks of a stream.
Follower: `Follower` opens a stream, agrees with the leader on the end of their common history, and passes the chunks
to an `Applier`. `steps` has the messages between both.
"""
