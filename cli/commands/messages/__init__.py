# SPDX-License-Identifier: Apache-2.0
"""Messages into the store and out of it."""
