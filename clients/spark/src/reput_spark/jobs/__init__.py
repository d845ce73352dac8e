# SPDX-License-Identifier: Apache-2.0
"""Jobs for spark-submit."""
