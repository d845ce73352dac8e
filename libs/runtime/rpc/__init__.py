# SPDX-License-Identifier: Apache-2.0
"""The gRPC side of a process: server, handlers, roles and tokens, bounds, peers."""
