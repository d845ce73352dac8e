# SPDX-License-Identifier: Apache-2.0
"""What the members of a group have in common when they receive from a topic."""
