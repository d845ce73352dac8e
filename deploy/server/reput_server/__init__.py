# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH100, PTH112, PTH118, PTH120 - pathlib would be imported here, although commands import it later
"""The installed server: the only import name that Reput's server has in an environment.

Its packages (`cli`, `libs`, `services`) are in `app/` beside this file, where no other program's `import libs` finds
them. The command adds them to the path of its own process and of its child processes: behind the standard library,
which has most imported modules, or first if foreign packages are in front. In a checkout they are at its root.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = os.path.join(_HERE, "app")
ROOT = _INSTALLED if os.path.isdir(_INSTALLED) else os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
"""Directory of the server's packages."""


def main() -> int:
    """Run the `reput` command. Modules are not imported from the current folder or the folder of the program."""
    if not sys.flags.safe_path:
        del sys.path[0]
    sys.path.insert(_place(), ROOT)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    from cli.main import command as run

    return run()


def _place() -> int:
    """Return the place of our packages on the path: behind the standard library, if no foreign packages precede it."""
    library = os.path.dirname(os.__file__)
    behind = sys.path.index(library) + 1 if library in sys.path else 0
    return behind if all(entry.endswith(".zip") for entry in sys.path[: behind - 1]) else 0
