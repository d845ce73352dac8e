# SPDX-License-Identifier: Apache-2.0
"""The start of a store: its opening and recovery."""
