# SPDX-License-Identifier: Apache-2.0
"""The synchronous door, whose names `reput_client` has."""
