# SPDX-License-Identifier: Apache-2.0
"""Changes of the store: each is previewed, confirmed, and made with the call that the command line uses.

A change is prepared from its arguments alone: once for the preview, and again for the confirmation, which makes it only
if both came out the same.
"""
