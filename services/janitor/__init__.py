# SPDX-License-Identifier: Apache-2.0
"""Janitor: owns only its policy and history. It decides which segments expire, and the owners delete them."""
