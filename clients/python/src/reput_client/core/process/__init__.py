# SPDX-License-Identifier: Apache-2.0
"""The process: a check for objects that do not work after a fork."""
