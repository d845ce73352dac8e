# SPDX-License-Identifier: Apache-2.0
"""Doors to coordinators: what keeps the record of a replicated log outside of all its members."""
