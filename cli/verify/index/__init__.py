# SPDX-License-Identifier: Apache-2.0
"""Verify IndexFiles against the log."""
