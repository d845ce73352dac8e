# SPDX-License-Identifier: Apache-2.0
"""The systems that are measured beside Reput: a room each, with its server, its settings and its own best client."""
