# SPDX-License-Identifier: Apache-2.0
"""Dead letters of groups: which there are, and how they go back to where they came from."""
