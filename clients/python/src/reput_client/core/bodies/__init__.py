# SPDX-License-Identifier: Apache-2.0
"""Bodies of messages: compressed on the way out, inflated on the way in."""
