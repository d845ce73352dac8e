# SPDX-License-Identifier: Apache-2.0
"""The client's logger."""

import logging

log = logging.getLogger("reput_client")
"""Logs each failed attempt at INFO. Logs at WARNING messages that were given up, failed commits, and tokens that other
users can read."""
