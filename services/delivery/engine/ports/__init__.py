# SPDX-License-Identifier: Apache-2.0
"""What the engine needs of other services, as protocols and values."""
