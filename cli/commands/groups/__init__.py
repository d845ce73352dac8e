# SPDX-License-Identifier: Apache-2.0
"""Commands about consumer groups: their offsets, the messages that they share, and their dead letters."""
