# SPDX-License-Identifier: Apache-2.0
"""How what was written becomes durable, and what a batch is acknowledged as."""
