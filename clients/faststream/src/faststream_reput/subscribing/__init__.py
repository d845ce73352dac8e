# SPDX-License-Identifier: Apache-2.0
"""Subscribers: members of a group that shares the messages of a topic."""
