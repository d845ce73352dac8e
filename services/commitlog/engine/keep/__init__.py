# SPDX-License-Identifier: Apache-2.0
"""The upkeep of the log: segments, disks, epochs, snapshots of queue offsets."""
