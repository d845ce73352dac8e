# SPDX-License-Identifier: Apache-2.0
"""What both engines need of files: Segment, SegmentChain, StoreCheckpoint, and where the records of a log end."""
