# SPDX-License-Identifier: Apache-2.0
"""The log and its index over gRPC, as the engine's ports have them."""
