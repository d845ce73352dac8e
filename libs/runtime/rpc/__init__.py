# SPDX-License-Identifier: Apache-2.0
"""The gRPC side of a process: server, handlers, guard, bounds, errors, peers."""
