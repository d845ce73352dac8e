# SPDX-License-Identifier: Apache-2.0
"""The calling side of HTTP/2 in the loop: a channel, its connection, its calls."""
