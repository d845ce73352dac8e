# SPDX-License-Identifier: Apache-2.0
"""Reput's load generator: `python -m bench.load OPERATION …`, with the command line that all load generators share."""
