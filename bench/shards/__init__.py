# SPDX-License-Identifier: Apache-2.0
"""What shards cost: the processor time of each service for a message, with one store and with several shards."""
