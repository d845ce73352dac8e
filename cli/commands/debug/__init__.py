# SPDX-License-Identifier: Apache-2.0
"""Help in trouble: `reput debug bundle` and `reput bench`."""
