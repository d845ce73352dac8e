# SPDX-License-Identifier: Apache-2.0
"""Janitor's plain objects: the retention policy and the loop that applies it."""
