# SPDX-License-Identifier: Apache-2.0
"""Messages that are delivered at a time: which of them wait, until when, and what became of the others."""
