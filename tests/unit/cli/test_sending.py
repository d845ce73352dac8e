# SPDX-License-Identifier: Apache-2.0
"""`reput put`: the source of the messages, the wrong line, the messages stored before it, and the progress."""

import io
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import typer
from reput_client import Durability, NewMessage, SendResult

from cli.commands.messages import sending
from cli.commands.messages.sources import Arguments, Lines, from_json, said, size_left
from cli.exit_codes import CommandFailed, ExitCode
from cli.output.progress import Meter

DEFAULTS: dict[str, Any] = {"topic": "t"}
DEEP = '{"body": "b", "properties": ' + '{"a":' * 20_000 + "1" + "}" * 20_001


class Store:
    """A producer that stores at once, and can't encode a body `bad`."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def send_batch(self, messages: Sequence[NewMessage]) -> Future[list[Any]]:
        """Store all of them, or none."""
        if any(message.body == b"bad" for message in messages):
            raise ValueError("a body is not bad")
        self.bodies += [message.body for message in messages]
        outcome: Future[list[Any]] = Future()
        outcome.set_result([SendResult(0, 0, 0, 0, Durability.LOCAL_DISK, "unique", bytes(8)) for _ in messages])
        return outcome


def sent(file: Path) -> tuple[Store, CommandFailed | None]:
    """Send a file of JSON lines. Returns the store and the failure."""
    store = Store()
    with Lines(DEFAULTS, file, are_json=True) as source:
        try:
            sending.send_all(store, source, "DEFAULT", as_json=False)  # type: ignore[arg-type]
        except CommandFailed as failure:
            return store, failure
    return store, None


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['{"body": "a"}', "", "{", '{"body": "c"}'], "BAD_LINE: line 3: no JSON at column 2: "),
        (['{"body": "a"}', "[]"], "BAD_LINE: line 2: not a JSON object"),
        (['{"body": "a"}', "", '{"body": "bad"}', '{"body": "c"}'], "BAD_MESSAGE: line 3: a body is not bad"),
        (['{"body": "a"}', DEEP, '{"body": "c"}'], "BAD_LINE: line 2: arrays and objects are nested too deeply"),
        (['{"body": "a"}', "[" * 200_000], "BAD_LINE: line 2: arrays and objects are nested too deeply"),
        (['{"body": "a"}', f'{{"body": "b", "flag": {"9" * 5000}}}'], "BAD_LINE: line 2: an integer has more than "),
        (['{"body": "a"}', '\ufeff{"body": "b"}'], "BAD_LINE: line 2: begins with a byte order mark (U+FEFF)"),
        (['{"body": "a"}', '{"body": "\\ud800"}'], r"BAD_LINE: line 2: \ud800 is half of a"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error has the number of the line in the file, where empty lines count.

    The lines before it are stored, and no line behind it.
    """
    (tmp_path / "file").write_text("\n".join(lines), encoding="utf-8")
    store, failure = sent(tmp_path / "file")
    assert failure is not None
    assert failure.code is ExitCode.USAGE
    assert str(failure).startswith(text)
    assert str(failure).endswith("; 1 message before it stored")
    assert store.bodies == [b"a"]
    assert "unique id          unique" in capsys.readouterr().out


def test_a_bad_first_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is stored, and the output tells this once."""
    (tmp_path / "file").write_text("nonsense")
    store, failure = sent(tmp_path / "file")
    assert str(failure) == "BAD_LINE: line 1: no JSON at column 1: expecting value; nothing was stored"
    assert (store.bodies, capsys.readouterr().out) == ([], "")


def test_sources_know_how_much_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The total of a file is its bytes from the current position, and of arguments their number.

    A pipe has no total.
    """
    (tmp_path / "file").write_bytes(b"first\nab\ncd\n")
    with (tmp_path / "file").open("rb") as stream:
        assert size_left(stream) == 12
        stream.readline()
        assert size_left(stream) == 6
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        source = Lines(DEFAULTS, None, are_json=False)
        chunks = [chunk for chunk in source.chunks() if chunk.messages]
        assert [message.body for chunk in chunks for message in chunk.messages] == [b"ab", b"cd"]
        assert (source.done, source.total) == (6, 6)
    assert size_left(io.BytesIO(b"x")) is None
    arguments = Arguments(DEFAULTS, ["a", "b"])
    assert (arguments.total, [chunk.numbers for chunk in arguments.chunks()], arguments.done) == (2, [[1, 2]], 2)


def test_a_line_that_is_no_utf_8() -> None:
    """The error has the place and a remedy."""
    with pytest.raises(UnicodeDecodeError) as caught:
        from_json(b'{"body": "\xff"}', DEFAULTS)
    assert said(caught.value) == "no UTF-8 at byte 11: give a body that is no text as 'body_base64'"


def test_a_closed_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is sent although standard input is closed.

    A read of closed standard input is refused with the remedy.
    """
    monkeypatch.setattr(sys, "stdin", None)
    (tmp_path / "file").write_text('{"body": "a"}\n')
    store, failure = sent(tmp_path / "file")
    assert (store.bodies, failure) == ([b"a"], None)
    for file in (None, Path("-")):
        with pytest.raises(typer.BadParameter, match="standard input is closed: give a file's name"):
            Lines(DEFAULTS, file, are_json=file is not None)


def test_progress_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress of a file is measured in bytes, so that the remaining time is known.

    Users are shown messages and their rate.
    """
    (tmp_path / "file").write_text('{"body": "a"}\n' * 10)
    shown: list[tuple[int, int | None]] = []
    monkeypatch.setattr(Meter, "show", lambda _self, done, *, count=None, total=None: shown.append((done, count)))
    _, failure = sent(tmp_path / "file")
    assert failure is None
    assert shown[-1] == (140, 10)


def test_what_a_meter_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """A meter shows count and rate, as messages or as sizes.

    It shows nothing within the first second, and nothing if it is not to be shown.
    """
    seconds = [100.0]
    monkeypatch.setattr("cli.output.progress.time.monotonic", lambda: seconds[0])
    told: list[dict[str, Any]] = []

    class Bar:
        task_ids = (0,)

        def update(self, _task: int, **fields: Any) -> None:
            told.append(fields)

        def stop(self) -> None:
            told.append({})

    monkeypatch.setattr("cli.output.progress._new_bar", lambda _description: Bar())
    meter = Meter("put", 1000, "messages", is_shown=True)
    meter.show(10)
    assert told == []
    seconds[0] += 2
    meter.show(500, count=2_000)
    assert told == [{"completed": 500, "total": 1000, "told": "2,000 messages, 1,000/s"}]
    meter.close()
    assert told[-1] == {}
    sizes = Meter("verify", None, "", is_shown=True)
    seconds[0] += 2
    sizes.show(4 << 20)
    assert told[-1]["told"] == "4.0 MiB, 2.0 MiB/s"
    silent = Meter("put", 1, "messages", is_shown=False)
    seconds[0] += 9
    silent.show(1)
    assert len(told) == 3


def test_json_lines() -> None:
    """Bytes in base64 and text are bodies; the error of a bad message names its field."""
    assert from_json(b'{"body_base64": "/wA=", "tag": "x"}', DEFAULTS).body == b"\xff\x00"
    with pytest.raises(ValueError, match="unknown key 'colour'"):
        from_json(b'{"body": "a", "colour": 1}', DEFAULTS)
