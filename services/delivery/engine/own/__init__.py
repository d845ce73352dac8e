# SPDX-License-Identifier: Apache-2.0
"""A single process owns the journal and serves all groups."""
