# SPDX-License-Identifier: Apache-2.0
"""ReputBrokerConfig: the common settings of a broker, its routers, subscribers and publishers."""

from dataclasses import dataclass

from faststream._internal.configs import BrokerConfig
from faststream.exceptions import IncorrectState
from reput_client.aio import AsyncClient

POLL_S = 2.0
"""How long a subscriber waits for a message in a call. A stop may take as long."""


@dataclass(kw_only=True)
class ReputBrokerConfig(BrokerConfig):
    """The settings of a broker or router. The client is there while the broker is connected."""

    group: str = ""
    poll_s: float = POLL_S
    connected: AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        """The client of the broker. Raises IncorrectState before `connect`."""
        if self.connected is None:
            raise IncorrectState("the broker is not connected: call `connect` or `start` first")
        return self.connected
