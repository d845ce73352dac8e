# SPDX-License-Identifier: Apache-2.0
"""Rebuild of all indexes, and removal of queues that are not needed any more."""
