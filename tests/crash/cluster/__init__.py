# SPDX-License-Identifier: Apache-2.0
"""The cluster: three CommitLogs that elect a leader, in a single thread, with network, clocks and coordinator by seed.

`world` has the machines, `node` is a machine, `network` connects them, `coordinator` is the base of their elections;
`loop` stops processes in the middle, `clients` send and read, `actions` are the steps, `promises` has the promises to
clients, `rules` the rules that members must keep meanwhile, `simulate` turns a seed into a run, `plants` are bugs to
catch.
"""

from tests.crash.seeds import SimulationPart

PART = SimulationPart("cluster", {"ci": 150, "long": 20_000})
