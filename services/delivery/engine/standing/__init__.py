# SPDX-License-Identifier: Apache-2.0
"""Standing: how far groups are."""
