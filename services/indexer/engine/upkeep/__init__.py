# SPDX-License-Identifier: Apache-2.0
"""What operators ask for: rebuild the indexes, remove queues."""
