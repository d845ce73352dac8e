# SPDX-License-Identifier: Apache-2.0
"""The type of what decoders read from: any object with the buffer protocol.

Decoders release the views that they take before they return or raise, so a mapping can be closed right afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

    ReadableBuffer: TypeAlias = Buffer
