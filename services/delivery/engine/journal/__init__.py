# SPDX-License-Identifier: Apache-2.0
"""The journal in the log: written, copied, replayed, and the time that its answers tell."""
