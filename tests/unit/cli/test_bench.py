# SPDX-License-Identifier: Apache-2.0
"""`reput bench`: the verdict is a pure function of figures, and nothing is left on the disk."""

from pathlib import Path

import pytest

from cli.commands.debug.bench import Figures, verdict_of
from tests.support.reput_up import run_here


def figures(p50_s: float, p99_s: float) -> Figures:
    """Figures with these times of syncs."""
    return Figures(p50_s, p99_s, 2 * p99_s, 1 / p50_s, 1e8, 1e-4, 1e-3, is_read_past_cache=True)


@pytest.mark.parametrize(
    ("p50_s", "p99_s", "word"),
    [
        (2e-6, 1e-5, "doubtful"),
        (1e-4, 1e-3, "fit"),
        (4e-3, 0.02, "fit"),
        (4e-3, 0.021, "slow"),
        (9e-3, 0.2, "unfit"),
        (2e-6, 0.2, "doubtful"),
    ],
)
def test_the_verdict(p50_s: float, p99_s: float, word: str) -> None:
    """The times of syncs decide."""
    verdict = verdict_of(figures(p50_s, p99_s))
    assert verdict.word == word
    assert verdict.text


def test_a_run_leaves_nothing(tmp_path: Path) -> None:
    """A short run has all figures, and the directory is as it was."""
    result = run_here("bench", str(tmp_path), "--size-mib", "8", "--seconds", "0.1", "--json")
    assert result.code in (0, 7), result
    [row] = result.rows
    assert row["verdict"] in ("fit", "slow", "unfit", "doubtful")
    assert 0 < row["sync_p50_s"] <= row["sync_p99_s"] <= row["sync_max_s"]
    assert min(row["appends_per_s"], row["write_bytes_per_s"], row["read_p50_s"]) > 0
    assert list(tmp_path.iterdir()) == []
    text = run_here("bench", str(tmp_path), "--size-mib", "8", "--seconds", "0.1").output
    assert text.startswith(f"{row['verdict']}: ") or text.split(":")[0] in ("fit", "slow", "unfit", "doubtful")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("/none",), "does not exist"),
        (("/etc/hostname",), "is a file"),
        ((".", "--size-mib", "7"), "at least 8"),
        ((".", "--size-mib", "65537"), "at most 65536"),
        ((".", "--seconds", "nan"), "must be"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], said: str) -> None:
    """A wrong argument is refused before anything is written."""
    result = run_here("bench", *arguments)
    assert (result.code, said in result.errors) == (2, True), result


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without twice the size free nothing is written."""
    import os

    found = os.statvfs(tmp_path)
    small = os.statvfs_result((*found[:4], 10, *found[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _path: small)
    result = run_here("bench", str(tmp_path))
    assert (result.code, "--size-mib is 256" in result.errors) == (2, True), result
    assert list(tmp_path.iterdir()) == []
