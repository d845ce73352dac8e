# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: append each to its own topic when it is due."""
