# SPDX-License-Identifier: Apache-2.0
"""One process owns the journal and serves all groups."""
