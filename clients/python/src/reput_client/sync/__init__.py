# SPDX-License-Identifier: Apache-2.0
"""The synchronous client. Its names are imported from `reput_client`."""
