# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios on systems, round by round, so that a slow minute of the machine touches all of them.

A system that this machine lacks, or that can't be built, is left out and named; a run that fails is kept as a failed
run; the rest continues. Each measurement has a fresh server; in the short size each round has a server for all loads of
the same mode, which saves most of the time. The systems change places from round to round.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.peers.peer import Durability, Peer, PeerMissing, Serving, run_load
from bench.peers.registry import peer_of
from bench.results import Figures, Results, Run
from bench.scenarios.model import Load, Scenario, Size
from bench.usage import watched

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The scenarios, systems and lengths of a run."""

    scenarios: Sequence[Scenario]
    peers: Sequence[str]
    round_count: int
    seconds: float
    size: Size
    data_dir: Path

    @property
    def run_count(self) -> int:
        """Measurements in all rounds, at most."""
        return sum(
            min(self.round_count, scenario.round_limit(self.size))
            * len([peer for peer in scenario.peers if peer in self.peers])
            for scenario in self.scenarios
        )

    def of_round(self, number: int) -> list[Scenario]:
        """Return the scenarios of a round, from 1."""
        return [one for one in self.scenarios if number <= one.round_limit(self.size)]


@dataclass(slots=True)
class Systems:
    """The systems that can run here, and why other systems can't run."""

    ready: dict[str, Peer] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Name -> the program to install."""
    broken: dict[str, str] = field(default_factory=dict)
    """Name -> how its preparation failed."""

    @classmethod
    def prepared(cls, names: Sequence[str]) -> "Systems":
        """Fetch and build."""
        systems = cls()
        for name in names:
            try:
                peer = peer_of(name)
                systems.versions[name] = peer.prepare()
                systems.ready[name] = peer
            except PeerMissing as missing:
                systems.missing[name] = str(missing)
            except Exception as error:  # noqa: BLE001 - the others are measured all the same
                systems.broken[name] = _text(error)
        return systems

    def settings(self) -> dict[str, dict[str, Mapping[str, str]]]:
        """Return the settings of each system that runs."""
        durabilities: tuple[Durability, ...] = ("async", "sync")
        return {name: {kind: peer.settings(kind) for kind in durabilities} for name, peer in self.ready.items()}


Tell = Callable[[str], None]
"""Hears the next measurement, once before each."""


class Driver:
    """Runs a plan. `results` grows with each measurement; `skipped` has the scenarios that this machine can't run."""

    def __init__(self, plan: Plan, systems: Systems) -> None:
        self.results = Results()
        self.skipped: dict[str, str] = {}
        self._plan = plan
        self._systems = systems

    def run_round(self, number: int, tell: Tell) -> None:
        """Run a round of all scenarios, numbered from 1."""
        scenarios = self._plan.of_round(number)
        for group in groups(
            [one for one in scenarios if isinstance(one.what, Load)], is_shared=self._plan.size == "short"
        ):
            for name in rotated(self._present(group), number - 1):
                wanted = [one for one in group if name in one.peers]
                self.results.runs.extend(self._loads(name, wanted, number, tell))
        for scenario in scenarios:
            if not isinstance(scenario.what, Load) and "reput" in self._systems.ready:
                tell(scenario.name)
                self._measure(scenario, number)

    def _present(self, group: Sequence[Scenario]) -> list[str]:
        return [name for name in self._systems.ready if any(name in scenario.peers for scenario in group)]

    def _loads(self, name: str, scenarios: Sequence[Scenario], number: int, tell: Tell) -> Iterator[Run]:
        """Run the loads of a group on a system, with a single server."""
        peer, pending = self._systems.ready[name], list(scenarios)
        try:
            with self._folder() as folder, peer.running(folder, pending[0].mode) as serving:
                while pending:
                    tell(f"{pending[0].name}, {peer.name}")
                    run = self._load(name, pending.pop(0), serving, number)
                    if run is not None:
                        yield run
        except Exception as error:  # noqa: BLE001 - a server that fails is shown as failed, the rest goes on
            for scenario in pending or scenarios[-1:]:
                yield Run(scenario.name, name, number, {}, _text(error))

    def _load(self, name: str, scenario: Scenario, serving: Serving, number: int) -> Run | None:
        """Run a load. Returns None for an operation that the system does not have."""
        load = scenario.what
        assert isinstance(load, Load)
        if load.operation not in self._systems.ready[name].operations:
            return None
        is_own = name.startswith("reput")
        length = {"seconds": self._plan.seconds} if load.operation in ("append", "read", "receive") else {}
        try:
            if load.fill is not None:
                run_load(
                    serving,
                    "append",
                    {**load.fill, "seconds": self._plan.seconds, **(load.own_fill if is_own else {})},
                )
            with watched(serving.pids) as usage:
                arguments = {**load.arguments, **length, **(load.own_arguments if is_own else {})}
                told = run_load(serving, load.operation, arguments, usage.stop)
            figures = figures_of(told)
            if serving.pids:
                seconds = figures["messages"] / figures["messages_per_s"] + figures.get("index_lag_s", 0)
                figures["cpu_s_per_million"] = usage.cpu_s(seconds) / figures["messages"] * 1e6
                figures["own_megabytes"], figures["resident_megabytes"] = usage.own_megabytes, usage.resident_megabytes
            return Run(scenario.name, name, number, figures)
        except Exception as error:  # noqa: BLE001 - see above
            return Run(scenario.name, name, number, {}, _text(error))

    def _measure(self, scenario: Scenario, number: int) -> None:
        """Make a measurement of our own."""
        assert not isinstance(scenario.what, Load)
        free_gib = psutil.disk_usage(str(self._plan.data_dir)).free / GIB
        if free_gib < scenario.free_gib_min:
            self.skipped[scenario.name] = f"needs {scenario.free_gib_min} GiB of free disk, {free_gib:.0f} are there"
            return
        try:
            with self._folder() as folder:
                figures: Figures = scenario.what(folder, scenario.mode, self._plan.seconds)
            self.results.runs.append(Run(scenario.name, "reput", number, figures))
        except Exception as error:  # noqa: BLE001 - see above
            self.results.runs.append(Run(scenario.name, "reput", number, {}, _text(error)))

    def _folder(self) -> "_Folder":
        return _Folder(prefix="reput-bench-", dir=self._plan.data_dir)


class _Folder(tempfile.TemporaryDirectory[str]):
    """A temporary directory as a Path."""

    def __enter__(self) -> Path:  # type: ignore[override]
        return Path(super().__enter__())


def groups(scenarios: Sequence[Scenario], *, is_shared: bool) -> list[list[Scenario]]:
    """Return scenarios that share a server: scenarios of the same mode and the same systems, or each by itself."""
    if not is_shared:
        return [[scenario] for scenario in scenarios]
    found: dict[tuple[Durability, tuple[str, ...]], list[Scenario]] = {}
    for scenario in scenarios:
        found.setdefault((scenario.mode, tuple(scenario.peers)), []).append(scenario)
    return [sorted(group, key=_is_bulk) for group in found.values()]


def _is_bulk(scenario: Scenario) -> bool:
    """Return whether it leaves gigabytes to write back, so that latencies had better be measured before."""
    assert isinstance(scenario.what, Load)
    return scenario.what.operation != "latency"


def rotated(names: Sequence[str], count: int) -> list[str]:
    """Return the names, beginning so many places later."""
    start = count % len(names) if names else 0
    return [*names[start:], *names[:start]]


def figures_of(told: Mapping[str, object]) -> dict[str, float]:
    """Return a load generator's output as figures."""
    values = {name: float(value) for name, value in told.items() if isinstance(value, int | float)}
    messages, size_bytes, seconds = values.pop("messages"), values.pop("bytes"), values.pop("seconds")
    if messages == 0:
        raise ValueError("the load generator told of no message")
    figures = {"messages_per_s": messages / seconds, "megabytes_per_s": size_bytes / seconds / 1e6}
    latencies = told.get("latencies_ms", {})
    assert isinstance(latencies, dict)
    figures |= {f"{name}_ms": float(value) for name, value in latencies.items()}
    return figures | values | {"messages": messages}


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
