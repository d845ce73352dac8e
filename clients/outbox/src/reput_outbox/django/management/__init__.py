# SPDX-License-Identifier: Apache-2.0
"""Management of the app."""
