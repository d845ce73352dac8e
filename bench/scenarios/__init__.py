# SPDX-License-Identifier: Apache-2.0
"""The measurements as data. A scenario is a load on systems side by side, or a measurement of something of our own.

The words of a load (operation, body, batch, producers, callers, calls) are the words of the load generators' command
line.
"""

from bench.scenarios.beside_peers import PEER_SCENARIOS
from bench.scenarios.inside import OWN_SCENARIOS
from bench.scenarios.model import Scenario, Size

__all__ = ["OWN_SCENARIOS", "PEER_SCENARIOS", "SCENARIOS", "of_size"]

SCENARIOS = (*PEER_SCENARIOS, *OWN_SCENARIOS)


def of_size(size: Size) -> list[Scenario]:
    """Return the scenarios of a size."""
    return [scenario for scenario in SCENARIOS if size == "full" or scenario.short_round_count_max]
