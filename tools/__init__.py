# SPDX-License-Identifier: Apache-2.0
"""Programs for those who change Reput: set-up, generated files, checks."""
