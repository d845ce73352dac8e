# SPDX-License-Identifier: Apache-2.0
"""The settings of a relay."""

from dataclasses import dataclass, fields

BATCH_ROWS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """The settings of a relay. Raises ValueError or TypeError for an invalid value."""

    batch_rows: int = 500
    """Most rows of a batch."""
    batch_bytes: int = 1 << 20
    """A batch takes no further row above this size. A larger row is a batch of its own."""
    poll_s: float = 0.5
    """Seconds between two looks at an empty outbox, where no notification comes."""
    lease_s: float = 10.0
    """A relay takes over when the other has not moved for so many seconds."""
    keep_s: float = 3600.0
    """Seconds that sent rows are kept. After the loss of messages in a store such rows are sent again."""
    retry_s: float = 30.0
    """Seconds between two attempts to send refused rows."""
    backoff_max_s: float = 10.0
    """Longest pause after a failure of the database or the store."""

    def __post_init__(self) -> None:
        """Check the values."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"{field.name} is {value!r}: expected a number")
            if value < 0 or (value == 0 and field.name != "keep_s"):
                raise ValueError(f"{field.name} is {value}: expected more than 0")
        if self.batch_rows > BATCH_ROWS_MAX:
            raise ValueError(f"batch_rows is {self.batch_rows}, the limit is {BATCH_ROWS_MAX}")
        if self.batch_bytes > 8 << 20:
            raise ValueError(f"batch_bytes is {self.batch_bytes}, the limit is {8 << 20}")
