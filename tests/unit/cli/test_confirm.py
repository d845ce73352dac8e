# SPDX-License-Identifier: Apache-2.0
"""Commands that delete ask first: yes, no, and no terminal."""

import io
import sys

import pytest

from cli.commands.typed.confirm import confirm
from cli.exit_codes import CommandFailed, ExitCode


class Terminal(io.StringIO):
    """A terminal with typed input."""

    def isatty(self) -> bool:
        """Return that the input is a terminal."""
        return True


def test_yes_needs_no_question(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With --yes nothing is read and nothing is printed."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    confirm("delete 3 segments", place="h:1", yes=True)
    assert capsys.readouterr() == ("", "")


def test_somebody_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The question is on standard error, with the store and the planned change; after a no nothing is changed."""
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    confirm("delete 3 segments (3.0 GiB)", place="h:1 (context shop)", yes=False)
    assert capsys.readouterr() == ("", "At h:1 (context shop): delete 3 segments (3.0 GiB)? [y/N] ")
    for typed in ("n\n", "\n", "", "yess\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        with pytest.raises(CommandFailed, match="NOT_CONFIRMED: nothing was changed") as caught:
            confirm("delete 3 segments", place="h:1", yes=False)
        assert caught.value.code is ExitCode.USAGE


@pytest.mark.parametrize("standard_input", [io.StringIO("y\n"), None], ids=["no terminal", "closed"])
def test_nobody_can_be_asked(standard_input: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the error tells a script the planned change, and that it needs --yes.

    The same holds if standard input is closed.
    """
    monkeypatch.setattr(sys, "stdin", standard_input)
    with pytest.raises(CommandFailed) as caught:
        confirm("delete 3 segments (3.0 GiB)", place="h:1 (context shop)", yes=False)
    assert caught.value.code is ExitCode.USAGE
    assert str(caught.value) == (
        "NOT_CONFIRMED: at h:1 (context shop) this would delete 3 segments (3.0 GiB); nobody can be asked here: "
        "say --yes"
    )
