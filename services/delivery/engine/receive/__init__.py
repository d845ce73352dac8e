# SPDX-License-Identifier: Apache-2.0
"""Receives: which messages a member gets, and how it settles them."""
