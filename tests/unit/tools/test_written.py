# SPDX-License-Identifier: Apache-2.0
"""Generated files are written, and a check tells which differ without a change."""

from pathlib import Path

import pytest

from tools.written import write_or_check


def test_files_are_written_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check fails for a file that is missing, differs or is surplus, and names it; after a write it passes."""
    new, changed, same, surplus = (tmp_path / name for name in ("folder/new", "changed", "same", "surplus"))
    changed.write_text("one\ntwo\n")
    same.write_text("same\n")
    surplus.write_text("too much\n")
    files = {new: "new\n", changed: "one\nthree\n", same: "same\n"}
    monkeypatch.setattr("sys.argv", ["tool", "--check"])
    assert write_or_check(files, {surplus}) == 1
    told = capsys.readouterr().out
    assert "-two\n+three\n" in told
    assert [name for name in ("new", "changed", "same", "surplus") if f"{name} is not up to date" in told] == [
        "new",
        "changed",
        "surplus",
    ]
    assert not new.exists()
    assert surplus.exists()
    monkeypatch.setattr("sys.argv", ["tool"])
    assert write_or_check(files, {surplus}) == 0
    assert (new.read_text(), changed.read_text(), surplus.exists()) == ("new\n", "one\nthree\n", False)
    monkeypatch.setattr("sys.argv", ["tool", "--check"])
    assert write_or_check(files) == 0
