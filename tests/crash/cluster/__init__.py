# SPDX-License-Identifier: Apache-2.0
"""The cluster: three CommitLogs that elect one of them, in one thread, with network, clocks and coordinator by seed.

`world` has the machines, `node` is one of them, `network` what lies between them, `coordinator` what they elect by;
`loop` stops processes in the middle, `clients` send and read, `actions` are the steps, `promises` say what clients may
rely on, `rules` what members must keep to meanwhile, `simulate` turns a seed into a run, `plants` are bugs to catch.
"""

from tests.crash.seeds import SimulationPart

PART = SimulationPart("cluster", {"ci": 150, "long": 20_000})
