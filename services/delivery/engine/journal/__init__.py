# SPDX-License-Identifier: Apache-2.0
"""The journal in the log: its records, copies and replay, and the log's time from its answers."""
