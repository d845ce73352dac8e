# SPDX-License-Identifier: Apache-2.0
"""Operations on request: rebuild the indexes, trim them, remove queues."""
