# SPDX-License-Identifier: Apache-2.0
"""The plug-in of pytest: options, the marker, and the fixtures. It imports the store when a test wants one."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from pytest_reput.errors import FixtureError

if TYPE_CHECKING:
    from pytest_reput.memory import MemoryReput
    from pytest_reput.processes import ProcessReput

ENVIRONMENT = "reput_set_environment"
START_TIMEOUT = "reput_start_timeout"
MARKER = (
    "reput(commitlog={}, indexer={}, delivery={}, janitor={}): settings of the services of the fixture `reput` "
    "for this test, such as delivery={'transaction_first_check_ms': 100}"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("reput", "a Reput store inside tests")
    group.addoption(
        "--reput-start-timeout",
        type=float,
        metavar="SECONDS",
        help="how long `reput_processes` waits for its services (ini option reput_start_timeout, default 60)",
    )
    parser.addini(START_TIMEOUT, "seconds that `reput_processes` waits for its services", default="60")
    parser.addini(
        ENVIRONMENT,
        "let `reput_client.connect()` without addresses find the store of the test, by REPUT_CLIENT_… variables",
        type="bool",
        default=True,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def reput(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> "Iterator[MemoryReput]":
    """A new Reput store in this process: real services over a file system in memory and a clock that the test moves.

    Clients: reput.client(), reput.connect(), reput.aio.connect(). Names: reput.topic(), reput.name().
    Events: reput.advance(hours=2), reput.fail_next("append", "STORE_FULL"), reput.restart(crash=True).
    """
    from pytest_reput.memory import MemoryReput

    settings = _settings(request)
    try:
        store = MemoryReput(request.node.name, settings)
    except FixtureError as error:
        pytest.fail(str(error), pytrace=False)
    try:
        _point_at(store, request.config, monkeypatch)
        yield store
    finally:
        store.close()


@pytest.fixture(scope="session")
def _reput_processes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[ProcessReput]":
    """The processes, which all tests of the session share."""
    from pytest_reput.processes import ProcessReput

    given = request.config.getoption("--reput-start-timeout")
    timeout_s = float(request.config.getini(START_TIMEOUT) if given is None else given)
    try:
        store = ProcessReput(tmp_path_factory.mktemp("reput"), start_timeout_s=timeout_s)
    except FixtureError as error:
        pytest.fail(str(error), pytrace=False)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def reput_processes(
    request: pytest.FixtureRequest, _reput_processes: "ProcessReput", monkeypatch: pytest.MonkeyPatch
) -> "Iterator[ProcessReput]":
    """A Reput store as processes, shared by the tests of the session: `reput up` in a temporary directory.

    It has the methods of `reput`, without advance and fail_next. reput_processes.topic() is a topic of this test alone.
    """
    store = _reput_processes
    store.test_name = request.node.name
    if not store.is_running:  # a test has stopped it
        store.start()
    _point_at(store, request.config, monkeypatch)
    try:
        yield store
    finally:
        store.close_clients()


def _settings(request: pytest.FixtureRequest) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of the test's markers, the nearest marker first."""
    found: dict[str, dict[str, Any]] = {}
    for marker in request.node.iter_markers("reput"):
        if marker.args:
            raise pytest.UsageError(f"the marker reput takes settings by service: {MARKER}")
        for service, settings in marker.kwargs.items():
            found[service] = {**settings, **found.get(service, {})}
    return found


def _point_at(store: "MemoryReput | ProcessReput", config: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    if config.getini(ENVIRONMENT):
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
