# SPDX-License-Identifier: Apache-2.0
"""Programs for the developers of Reput: set-up, generated files, checks."""
