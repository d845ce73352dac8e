# SPDX-License-Identifier: Apache-2.0
"""The simulation: both engines on disks in memory, in one thread, with faults by seed and a model that checks it all.

`loop` and `process` make processes that die at any call, `world` runs the engines in them, `actions` are the steps,
`model` and `checks` say what must hold, `simulate` turns a seed into a run, `part` runs many.
"""

from tests.crash.sim.part import PART

__all__ = ["PART"]
