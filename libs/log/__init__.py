# SPDX-License-Identifier: Apache-2.0
"""What is known of a log as files: where its records are and end, whose history it shares, and how far it is."""
