# SPDX-License-Identifier: Apache-2.0
"""The process shell: configuration, telemetry, gRPC server, start and stop. For rpc/ and bootstrap only."""
