# SPDX-License-Identifier: Apache-2.0
"""The services behind the gateway over gRPC."""
