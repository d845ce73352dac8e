# SPDX-License-Identifier: Apache-2.0
"""The commands of `reput`: a module for each group of commands."""
