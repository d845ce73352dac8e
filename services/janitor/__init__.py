# SPDX-License-Identifier: Apache-2.0
"""Janitor: owns nothing but its policy and history; it decides what expires, the owners delete."""
