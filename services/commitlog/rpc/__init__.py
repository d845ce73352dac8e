# SPDX-License-Identifier: Apache-2.0
"""CommitLog's gRPC servicers: protobuf <-> engine, and the error table."""
