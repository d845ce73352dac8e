# SPDX-License-Identifier: Apache-2.0
"""A log as files: its records and their end, the history that it shares with others, and its watermarks."""
