# SPDX-License-Identifier: Apache-2.0
"""Migrations of the app."""
