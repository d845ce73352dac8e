# SPDX-License-Identifier: Apache-2.0
"""The replication stream over gRPC: the leader serves it, and a follower calls it."""
