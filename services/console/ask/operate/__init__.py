# SPDX-License-Identifier: Apache-2.0
"""The questions of the pages for operators."""
