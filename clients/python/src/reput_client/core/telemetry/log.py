# SPDX-License-Identifier: Apache-2.0
"""The client's logger."""

import logging

log = logging.getLogger("reput_client")
"""Tells at INFO of each attempt that failed, at WARNING of messages that were given up, commits that failed, and
tokens that other users can read."""
