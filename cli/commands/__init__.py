# SPDX-License-Identifier: Apache-2.0
"""The commands of `reput`: one module for each group of them."""
