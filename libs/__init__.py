# SPDX-License-Identifier: Apache-2.0
"""Rooms shared by the services. Imports go downwards: runtime, then store, then machine, then kernel and formats."""
