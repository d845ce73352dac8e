# SPDX-License-Identifier: Apache-2.0
"""Copies of a small real store for each test."""

from tests.support.made_store import made_store, store

__all__ = ["made_store", "store"]
