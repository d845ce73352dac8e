# SPDX-License-Identifier: Apache-2.0
"""The settings of a subscriber."""

from dataclasses import dataclass
from typing import Any

from faststream._internal.configs import SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy
from reput_client import SharePolicy

RECORD_COUNT_MAX = 1000
"""Most messages that the store gives in an answer."""


@dataclass(kw_only=True)
class ReputSubscriberConfig(SubscriberUsecaseConfig):
    """The arguments of `broker.subscriber`."""

    topic: str
    group: str | None
    policy: SharePolicy | None
    tags: str
    where: str
    max_workers: int
    batch: bool
    max_records: int
    invisible_s: float | None
    hold_s_max: float

    def __post_init__(self) -> None:
        """Raise SetupError for an argument that has no meaning."""
        if self.max_workers < 1:
            raise SetupError(f"max_workers is {self.max_workers}: expected 1 or more")
        if not 1 <= self.max_records <= RECORD_COUNT_MAX:
            raise SetupError(f"max_records is {self.max_records}: expected 1 to {RECORD_COUNT_MAX}")
        if self.batch and self.max_workers > 1:
            raise SetupError(f"max_workers is {self.max_workers}: a subscriber of batches has a single worker")

    @property
    def ack_policy(self) -> AckPolicy:
        """The policy of the subscriber, its router or its broker: a message whose handler fails comes again."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


def group_of(config: Any) -> str:
    """Return the group of the innermost router or broker with a group, or an empty text."""
    for one in reversed(getattr(config, "configs", ())):
        if group := group_of(one):
            return group
    return "" if hasattr(config, "configs") else getattr(config, "group", "")
