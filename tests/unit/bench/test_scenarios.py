# SPDX-License-Identifier: Apache-2.0
"""The scenarios as data, and their groups in the driver."""

from pathlib import Path

from bench.driver import Plan, figures_of, groups, rotated
from bench.peers.registry import ROOMS
from bench.scenarios import PEER_SCENARIOS, SCENARIOS, of_size
from bench.scenarios.model import Load


def test_names_are_unique_and_systems_known() -> None:
    """Each scenario has a unique name, and its systems are in the registry."""
    names = [scenario.name for scenario in SCENARIOS]
    assert len(names) == len(set(names))
    assert all(peer in ROOMS for scenario in SCENARIOS for peer in scenario.peers)


def test_short_is_a_part_of_full() -> None:
    """The full size has all scenarios; the short size has some of each kind that is compared."""
    assert of_size("full") == list(SCENARIOS)
    short = of_size("short")
    assert {"append", "latency"} <= {scenario.table for scenario in short}
    assert len(short) < len(SCENARIOS)


def test_groups_share_a_server_only_within_one_mode() -> None:
    """Without sharing each scenario is alone.

    With sharing the scenarios of a mode with the same systems are together.
    """
    assert groups(PEER_SCENARIOS, is_shared=False) == [[scenario] for scenario in PEER_SCENARIOS]
    shared = groups(PEER_SCENARIOS, is_shared=True)
    assert sorted(one.name for group in shared for one in group) == sorted(one.name for one in PEER_SCENARIOS)
    for group in shared:
        assert len({(scenario.mode, tuple(scenario.peers)) for scenario in group}) == 1


def test_each_scenario_names_its_mode() -> None:
    """The name of a scenario tells its durability mode, for any default of the store."""
    for scenario in SCENARIOS:
        assert scenario.mode in ("async", "sync")
        assert (scenario.mode == "sync") == ("sync" in scenario.name)


def test_a_shared_server_has_no_load_that_needs_an_empty_one() -> None:
    """A scenario of lookups, which needs an empty server, is not in the short size with its shared servers.

    A lookup knows its keys by counting the stored messages, so no other scenario may store messages there.
    """
    assert not any(isinstance(one.what, Load) and one.what.fill for one in of_size("short"))


def test_systems_change_places() -> None:
    """Each system is first in turn."""
    assert [rotated("abc", count) for count in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert rotated([], 3) == []


def test_plan_counts_its_runs() -> None:
    """Long scenarios have fewer rounds, and only requested systems count."""
    chosen = [scenario for scenario in SCENARIOS if scenario.name in ("append-1KiB", "lookup-20M")]
    plan = Plan(
        scenarios=chosen,
        peers=["reput", "kafka"],
        round_count=5,
        seconds=1.0,
        size="full",
        data_dir=Path("unused"),
    )
    assert plan.run_count == 5 * 2 + 1
    assert [scenario.name for scenario in plan.of_round(2)] == ["append-1KiB"]


def test_figures_of_what_a_load_generator_prints() -> None:
    """Rates come from counts and seconds; percentiles and further numbers are copied."""
    told = {
        "messages": 2_000,
        "bytes": 4_000_000,
        "seconds": 2.0,
        "latencies_ms": {"p50": 1.5, "p99": 3.0},
        "index_lag_s": 0.25,
    }
    assert figures_of(told) == {
        "messages": 2_000.0,
        "messages_per_s": 1_000.0,
        "megabytes_per_s": 2.0,
        "p50_ms": 1.5,
        "p99_ms": 3.0,
        "index_lag_s": 0.25,
    }
