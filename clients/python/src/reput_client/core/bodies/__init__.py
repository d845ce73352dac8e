# SPDX-License-Identifier: Apache-2.0
"""Bodies of messages: compressed when they are sent, inflated when they are read."""
