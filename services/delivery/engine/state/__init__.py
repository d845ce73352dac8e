# SPDX-License-Identifier: Apache-2.0
"""The state of groups and their messages, made of the journal's events alone. Pure."""
