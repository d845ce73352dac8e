# SPDX-License-Identifier: Apache-2.0
"""Janitor: owns nothing but its policy and history. It decides what expires, and the owners delete it."""
