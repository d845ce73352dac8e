# SPDX-License-Identifier: Apache-2.0
"""Boards for Grafana: their description, and the files that are made from it."""
