# SPDX-License-Identifier: Apache-2.0
"""The process: what a fork takes away."""
