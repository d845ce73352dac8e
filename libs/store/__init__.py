# SPDX-License-Identifier: Apache-2.0
"""File mechanics both engines need: Segment, SegmentChain, StoreCheckpoint. Knows no records and no queues."""
