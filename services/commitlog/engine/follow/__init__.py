# SPDX-License-Identifier: Apache-2.0
"""The read path of the log: records, dispatch, and reports of followers."""
