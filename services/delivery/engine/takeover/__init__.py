# SPDX-License-Identifier: Apache-2.0
"""Takeover: what a process reads when it begins to deliver, and leaves for the next one."""
