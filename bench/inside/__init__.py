# SPDX-License-Identifier: Apache-2.0
"""Measurements of Reput that have no counterpart in other systems, and of the floors that it stands on."""
