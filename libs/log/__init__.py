# SPDX-License-Identifier: Apache-2.0
"""What is known of a log as files: its directories, its end, its checkpoint, and the config files beside it."""
