# SPDX-License-Identifier: Apache-2.0
"""Commands about consumer groups: how far they are, what they share, and what they could not process."""
