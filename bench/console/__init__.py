# SPDX-License-Identifier: Apache-2.0
"""The cost of the console: memory, processor time, first bytes and sizes of pages, with readers that keep them open."""
