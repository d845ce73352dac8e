# SPDX-License-Identifier: Apache-2.0
"""What the log keeps in order: segments, disks, epochs, snapshots of queue offsets."""
