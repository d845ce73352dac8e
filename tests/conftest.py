# SPDX-License-Identifier: Apache-2.0
"""What every test can rely on: the build of the kernel is the one that was asked for, and chance can be repeated."""

import gc
import logging
import os
import random
from collections import Counter
from collections.abc import Generator, Iterator

import hypothesis
import pytest

import libs.kernel
from tests.support.surroundings import forget_surroundings, import_grpc_without_forks, is_of_this_loop

PURE_RUN = os.environ.get("REPUT_NO_EXTENSIONS") == "1"
WORKER_COUNT_MAX = 8
"""More would start more of Spark's processes than a laptop has memory for."""

forget_surroundings()
import_grpc_without_forks()
logging.getLogger("asyncio").addFilter(is_of_this_loop)

hypothesis.settings.register_profile("reput", deadline=None, print_blob=True, max_examples=60)
hypothesis.settings.register_profile("pure", parent=hypothesis.settings.get_profile("reput"), max_examples=15)
hypothesis.settings.load_profile("pure" if PURE_RUN else "reput")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a run whose kernel is silently not the one that the run is for."""
    if libs.kernel.IS_COMPILED is PURE_RUN:
        raise pytest.UsageError(
            "the kernel is not compiled: run `make setup`, or set REPUT_NO_EXTENSIONS=1 to test the pure one"
            if not PURE_RUN
            else "REPUT_NO_EXTENSIONS=1 is set, but the compiled kernel was loaded"
        )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many tests run at once: twice the processors, as many of them wait most of the time."""
    return min(2 * len(os.sched_getaffinity(0)), WORKER_COUNT_MAX)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest tests first, where several run at once."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: not {"e2e", "smoke"} & set(item.path.parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and items, which never go, out of all garbage collections: some tests collect often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List each reason of skipped tests once, with their number, instead of each test."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, count in Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped).most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
    terminalreporter.reportchars = terminalreporter.reportchars.replace("s", "")


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Services and commands that tests start have a token and contexts of their own, not those of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A generator whose seed is printed when the test fails; REPUT_SEED=… repeats it."""
    seed = int(os.environ.get("REPUT_SEED", random.SystemRandom().getrandbits(32)))
    print(f"{request.node.nodeid}: repeat with REPUT_SEED={seed}")
    return random.Random(seed)
