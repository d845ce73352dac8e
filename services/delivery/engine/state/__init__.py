# SPDX-License-Identifier: Apache-2.0
"""What is known of groups and their messages, made of the journal's events alone. Pure."""
