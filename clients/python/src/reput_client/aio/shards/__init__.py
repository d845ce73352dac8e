# SPDX-License-Identifier: Apache-2.0
"""A client for all shards of a gateway: the producer, the share consumer and queries over the shards."""
