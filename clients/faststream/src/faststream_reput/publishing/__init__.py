# SPDX-License-Identifier: Apache-2.0
"""Publishers, and the producer behind all of them."""
