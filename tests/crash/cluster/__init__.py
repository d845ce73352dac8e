# SPDX-License-Identifier: Apache-2.0
"""The cluster: three CommitLogs that elect one of them, in one thread, with network, clocks and coordinator by seed.

`world` has the machines, `node` is one of them, `network` what lies between them, `coordinator` what they elect by;
`loop` stops processes in the middle, `clients` send and read, `actions` are the steps, `promises` say what must hold,
and `simulate` turns a seed into a run.
"""

from tests.crash.seeds import SimulationPart

PART = SimulationPart("cluster", {"ci": 300, "long": 20_000})
