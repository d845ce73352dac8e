# SPDX-License-Identifier: Apache-2.0
"""Measures of topics and groups for metrics."""
