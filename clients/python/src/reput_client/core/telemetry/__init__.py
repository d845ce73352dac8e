# SPDX-License-Identifier: Apache-2.0
"""What the client tells of itself: its log, numbers of producers and consumers, spans."""
