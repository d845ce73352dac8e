# SPDX-License-Identifier: Apache-2.0
"""The files besides the segments of a log: its directories, its checkpoint, its history, its config files."""
