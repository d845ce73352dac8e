# SPDX-License-Identifier: Apache-2.0
"""Tokens in files: several at once, renewed without a restart, and the local token, made for the user alone."""

import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from libs.runtime.errors import ConfigError
from libs.runtime.trust import tokens
from libs.runtime.trust.tokens import TokenFile, ensure_local_token, find_local_token, local_token_path


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test does not wait until a file is looked at again."""
    monkeypatch.setattr(tokens, "CHECK_INTERVAL_S", 0.0)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty place for the local token."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_each_line_is_good_and_the_first_is_shown(tmp_path: Path) -> None:
    """While a token is renewed both the new and the old token are accepted."""
    path = tmp_path / "token"
    path.write_text("new-one\n\n  old-one  \n")
    file = TokenFile("token_file", path)
    assert file.shown == "new-one"
    assert all(map(file.has, (b"new-one", b"old-one")))
    assert not any(map(file.has, (b"new", b"", b"new-one\n", b"old-one  ")))


def test_a_renewed_file_is_read(tmp_path: Path) -> None:
    """A token file that is overwritten or replaced, as by Kubernetes, is read again."""
    path = tmp_path / "token"
    path.write_text("first")
    file = TokenFile("token_file", path)
    path.write_text("the-second")
    assert (file.shown, file.has(b"first")) == ("the-second", False)
    (tmp_path / "draft").write_text("the-third!")
    (tmp_path / "draft").rename(path)
    assert file.shown == "the-third!"


@pytest.mark.parametrize("harm", ["gone", "empty", "binary"])
def test_a_bad_file_leaves_what_was_good(tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file keeps the old token, opens nothing, and is logged once."""
    path = tmp_path / "token"
    path.write_text("sesame")
    file = TokenFile("token_file", path)
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if harm == "empty" else b"\x00\xff")
    with caplog.at_level(logging.WARNING):
        assert [file.has(b"sesame"), file.has(b""), file.has(b"\x00\xff")] == [True, False, False]
    assert len(caplog.records) == 1
    assert str(path) in caplog.text


def test_the_local_token_is_made_once_for_its_user(home: Path) -> None:
    """Processes that begin at once agree on a single token, which only its user may read."""
    with ThreadPoolExecutor(8) as threads:
        paths = list(threads.map(lambda _: ensure_local_token(), range(8)))
    assert set(paths) == {home / "reput" / "token"}
    assert list((home / "reput").iterdir()) == [paths[0]]
    assert stat.S_IMODE(paths[0].stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "reput").stat().st_mode) == 0o700
    assert len(TokenFile("token", paths[0]).shown) >= 32
    first = TokenFile("token", paths[0]).shown
    assert TokenFile("token", ensure_local_token()).shown == first


def test_the_local_token_is_on_the_disk_before_it_is_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut leaves no empty file under its name, with which no service would start."""
    written, begin, name = [], os.open, os.link

    def open_synchronous(path: Path, flags: int, mode: int) -> int:
        assert flags & os.O_SYNC
        return begin(path, flags, mode)

    def link(source: Path, target: Path) -> None:
        written.append(source.stat().st_size)
        name(source, target)

    monkeypatch.setattr(os, "open", open_synchronous)
    monkeypatch.setattr(os, "link", link)
    made = ensure_local_token()
    assert written == [made.stat().st_size]


def test_a_local_token_that_others_may_read_is_refused(home: Path) -> None:
    """A local token that other users can read is refused, as ssh refuses such a key."""
    ensure_local_token().chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        ensure_local_token()
    assert home.exists()


def test_a_place_that_can_not_be_written_is_named(home: Path) -> None:
    """The single line of the error names the settings that help."""
    home.write_text("not a directory")
    with pytest.raises(ConfigError, match=r"state/reput/token: .*service_token_file"):
        ensure_local_token()


@pytest.mark.parametrize(
    ("targets", "is_shown"),
    [
        (["127.0.0.1:7101", "localhost:7102", "[::1]:7103", "unix:/run/reput/commitlog.sock"], True),
        (["127.0.0.1:7101", "store.example:7102"], False),
        (["10.0.0.1:7101"], False),
        (["127.0.0.1.example:7101"], False),
        (["dns:///localhost:7101"], False),
    ],
)
def test_the_local_token_stays_on_this_machine(home: Path, targets: list[str], is_shown: bool) -> None:
    """The local token is sent to loopback and Unix sockets.

    If any target is elsewhere it is not sent at all.
    """
    assert find_local_token(targets) is None
    assert not home.exists(), "asking makes none"
    shown = TokenFile("token", ensure_local_token()).shown
    assert find_local_token(targets) == (shown if is_shown else None)


def test_a_relative_state_home_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative XDG_STATE_HOME is ignored, as the XDG specification demands, and the user's home is used."""
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_token_path() == tmp_path / ".local" / "state" / "reput" / "token"
