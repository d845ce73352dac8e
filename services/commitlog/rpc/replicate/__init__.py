# SPDX-License-Identifier: Apache-2.0
"""The stream of replication over gRPC: the leader's side is served, the other side calls it."""
