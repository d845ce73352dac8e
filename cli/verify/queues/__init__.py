# SPDX-License-Identifier: Apache-2.0
"""Verify ConsumeQueue files against the log."""
