# SPDX-License-Identifier: Apache-2.0
"""Commands that append messages and read them."""
