# SPDX-License-Identifier: Apache-2.0
"""The simulation: both engines on disks in memory, in one thread, with faults by seed and a model that checks it all.

`loop` and `process` make processes that die at any call, `stage` runs them, `world` has the engines in them, `actions`
are the steps, `model` and `checks` say what must hold, `simulate` turns a seed into a run.
"""

from tests.crash.seeds import SimulationPart

PART = SimulationPart("sim", {"ci": 1_500, "long": 25_000})
