# SPDX-License-Identifier: Apache-2.0
"""How a store is opened and recovered."""
