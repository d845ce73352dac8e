# SPDX-License-Identifier: Apache-2.0
"""How others read the log: records, dispatch, their reports."""
