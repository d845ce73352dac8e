# SPDX-License-Identifier: Apache-2.0
"""How long the engine waits for the index, in seconds. The index reads the log a little later than the log answers."""

from typing import Final

READ_WAIT_S: Final = 20.0
"""A read that follows a queue waits so long for the next message."""

BEHIND_S: Final = 1.0
"""The pause before the next read of an index that is being built again, or while the reader has no room."""

INDEXED_WAIT_S: Final = 5.0
"""An operation that needs all records of the log waits so long for the index. Then it fails as unavailable."""

INDEXED_LOOK_S: Final = 0.02
"""The pause between two looks at the progress of the index."""
