# SPDX-License-Identifier: Apache-2.0
"""Count how much a run of tests checks: the assertions that were evaluated and held, the items and the subtests.

`python -m tools.count_assertions tests/unit -n 2` runs pytest with these arguments and this plugin. The run ends with a
line such as `96210 assertions in 5126 items, 2931 subtests`: a change of the tests that lowers it has dropped cases.
Only assert statements of test modules and conftests count: pytest does not rewrite the modules beside them.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import pytest

HOOK = "enable_assertion_pass_hook"
ASSERTIONS = "assertions"
"""Key of a worker's count in its last report to pytest-xdist."""


class Counter:
    """The counts of a run. Under pytest-xdist each worker counts its assertions, and the controller adds them up."""

    def __init__(self) -> None:
        self.assertion_count = 0
        self.item_count = 0
        self.subtest_count = 0

    def pytest_assertion_pass(self) -> None:
        """Count an assertion."""
        self.assertion_count += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count an item that ran, or a subtest."""
        if isinstance(report, pytest.SubtestReport):
            self.subtest_count += 1
        elif report.when == "call":
            self.item_count += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Let a worker report its count."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[ASSERTIONS] = self.assertion_count

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add a worker's count."""
        self.assertion_count += getattr(node, "workeroutput", {}).get(ASSERTIONS, 0)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts."""
        terminalreporter.write_line(
            f"{self.assertion_count} assertions in {self.item_count} items, {self.subtest_count} subtests"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count. Raises UsageError if pytest does not report assertions."""
    if not config.getini(HOOK):
        raise pytest.UsageError(f"assertions are only counted with -o {HOOK}=true")
    config.pluginmanager.register(Counter())


def main() -> int:
    """Run pytest and return its exit code.

    The rewritten modules go to a folder of this run: pytest would use those of a run that does not count, too.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage="%(prog)s [-h] [PYTEST ...]"
    )
    _, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as rewritten:
        command = [sys.executable, "-m", "pytest", "-p", "tools.count_assertions", "-o", f"{HOOK}=true", *arguments]
        surroundings = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": rewritten}
        return subprocess.run(command, env=os.environ | surroundings, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
