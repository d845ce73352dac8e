# SPDX-License-Identifier: Apache-2.0
"""The simulation: both engines on disks in memory, in a single thread, with faults by seed and a model.

`loop` and `process` make processes that die at any call, `stage` runs them, `world` has the engines in them, `actions`
are the steps, `model` and `checks` have the promises that must hold, `simulate` turns a seed into a run.
"""

from tests.crash.seeds import SimulationPart

PART = SimulationPart("sim", {"ci": 1_500, "long": 25_000})
