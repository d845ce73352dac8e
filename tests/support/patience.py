# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for what must happen: longer than any machine takes, so that only what hangs reaches it."""

LIMIT_S = 240.0
