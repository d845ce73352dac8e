# SPDX-License-Identifier: Apache-2.0
"""Dead letters of groups: written, listed and replayed."""
