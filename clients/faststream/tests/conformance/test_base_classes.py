# SPDX-License-Identifier: Apache-2.0
"""FastStream's test classes for brokers and descriptions pass with ReputBroker."""

from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clients.faststream.tests.conformance.source import prepare, run

OLDER = {"TestArguments30.test_slash_in_title"}
"""Fails with tests before 0.7.8: they expect a channel's title as its address, where FastStream 0.7.8 has the topic."""
README = Path(__file__).parents[2] / "README.md"


@pytest.mark.conformance
@pytest.mark.timeout(1800)
def test_the_base_classes_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """Every test of every class passes, and the README names each class."""
    target, revision = prepare()
    report, output = run(target)
    assert report.exists(), output
    counts = counts_of(report)
    with capsys.disabled():
        print(f"\nFastStream {version('faststream')}, its tests at {revision}\n\n| class | passed | failed | skipped |")
        print("|---|---|---|---|")
        for name, (passed, failed, skipped) in sorted(counts.items()):
            print(f"| `{name}` | {passed} | {failed} | {skipped} |")
        print(f"| all | {' | '.join(str(sum(column)) for column in zip(*counts.values(), strict=True))} |")
    expected = set() if revision == version("faststream") else OLDER
    assert counts
    assert failed_of(report) <= expected, output[-20_000:]
    named = README.read_text()
    assert [name for name in counts if f"`{name}`" not in named] == []


def failed_of(report: Path) -> set[str]:
    """Return the tests that failed, as class and name."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    failed = [case for case in cases if {child.tag for child in case} & {"failure", "error"}]
    return {f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}" for case in failed}


def counts_of(report: Path) -> dict[str, tuple[int, int, int]]:
    """Return the numbers of tests that passed, failed and were skipped, by class."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        outcome = {child.tag for child in case}
        index = 1 if outcome & {"failure", "error"} else 2 if "skipped" in outcome else 0
        counts[case.get("classname", "").rpartition(".")[2]][index] += 1
    return {name: (passed, failed, skipped) for name, (passed, failed, skipped) in counts.items()}
