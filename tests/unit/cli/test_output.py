# SPDX-License-Identifier: Apache-2.0
"""The output of commands: bodies, rows, fields, and the exit code of each error."""

import io
import json
import sys
import zlib

import grpc
import pytest
from reput.common.v1 import message_pb2
from reput_client import (
    BodyError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    Message,
    NotFoundError,
    OutcomeUnknownError,
    ReputError,
    ResourceExhaustedError,
    ServerError,
    UnavailableError,
)

from cli.exit_codes import MEANINGS, SERVE_MEANINGS, ExitCode, code_of
from cli.output.lines import error_line, warning_line
from cli.output.messages import body_text, message_fields, print_message
from cli.output.tables import print_fields, print_rows
from libs.runtime.process import ExitCode as ServeCode


def stored(body: bytes, **fields: object) -> Message:
    return Message(message_pb2.StoredMessage(topic="t", queue_id=1, queue_offset=2, body=body, **fields))  # type: ignore[arg-type]


def test_bodies(capsys: pytest.CaptureFixture[str]) -> None:
    """Text is shown as text without control characters, other bytes in hexadecimal, JSON loses nothing."""
    print_message(stored("grüße\n\x1b[31m".encode(), properties={"TAGS": "A", "KEYS": "k l"}), as_json=False)
    print_message(stored(b"\xff\x00"), as_json=False)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("t queue 1 offset 2, 1970-01-01T00:00:00.000Z, tag A, keys k l")
    assert shown[1:3] == ["  grüße", "  \\x1b[31m"]
    assert shown[4] == "  0xff00"
    assert message_fields(stored(b"\xff\x00"))["body_base64"] == "/wA="
    assert message_fields(stored("ü".encode()))["body"] == "ü"
    assert body_text(b"\xff") is None


def test_compressed_bodies(capsys: pytest.CaptureFixture[str]) -> None:
    """A compressed body is shown inflated; a body that can't be inflated is shown as it is stored, with the reason."""
    print_message(stored(zlib.compress(b"hello"), sys_flag=1), as_json=False)
    print_message(stored(b"plain", sys_flag=1), as_json=False)
    shown = capsys.readouterr().out.splitlines()
    assert (shown[1], shown[4]) == ("  hello", "  plain")
    assert shown[3].startswith("  (t queue 1 offset 2: its 5 bytes are no whole zlib body")
    assert message_fields(stored(zlib.compress(b"hello"), sys_flag=1))["body"] == "hello"
    damaged = message_fields(stored(b"plain", sys_flag=1))
    assert (damaged["body"], "no whole zlib body" in str(damaged["body_error"])) == ("plain", True)
    with pytest.raises(BodyError):
        print_message(stored(b"plain", sys_flag=1), as_json=False, raw=True)


def test_what_a_producer_chose_plays_no_tricks(capsys: pytest.CaptureFixture[str]) -> None:
    """Tags, keys, values in tables and texts of errors reach a terminal without control characters."""
    print_message(stored(b"x", properties={"TAGS": "\x1b]0;title\x07", "KEYS": "a\x9b2J b\nc"}), as_json=False)
    print_rows([{"name": "\x1b[2J", "names": ["\x1b", "ü"]}], ("name", "names"), as_json=False)
    print_fields({"name": "\x1b[2J"}, as_json=False)
    error_line("\x1b[2J")
    warning_line("\x1b[2J")
    shown = capsys.readouterr()
    assert {c for c in shown.out + shown.err if not c.isprintable()} == {"\n"}
    assert "tag \\x1b]0;title\\x07, keys a\\x9b2J b\\nc" in " ".join(shown.out.split("\n"))


def test_raw_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """--raw prints the bytes of the body and a line end."""
    output = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", output)
    print_message(stored(b"\xff\x00"), as_json=False, raw=True)
    assert output.buffer.getvalue() == b"\xff\x00\n"  # type: ignore[attr-defined]


def test_rows_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables show chosen columns as they are, JSON everything; markup in values is not interpreted."""
    rows = [{"a_b": "[bold]x[/bold]", "c": None, "d": True}, {"a_b": 1, "c": [1, 2], "d": False}]
    print_rows(rows, ("a_b", "c"), as_json=False)
    table = capsys.readouterr().out.splitlines()
    assert [line.split() for line in table] == [["a", "b", "c"], ["[bold]x[/bold]"], ["1", "1,", "2"]]
    print_rows(rows, ("a_b",), as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    print_fields({"is_up": True, "inner": {"x_y": 1}}, as_json=False)
    assert capsys.readouterr().out.splitlines() == ["is up      yes", "inner x y  1"]


def test_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is a single line, with any text."""
    error_line("a\nb   c")
    assert capsys.readouterr().err == "error: a b c\n"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (NotFoundError, ExitCode.NOT_FOUND),
        (UnavailableError, ExitCode.UNAVAILABLE),
        (OutcomeUnknownError, ExitCode.UNAVAILABLE),
        (DeadlineExceededError, ExitCode.UNAVAILABLE),
        (InvalidArgumentError, ExitCode.REFUSED),
        (FailedPreconditionError, ExitCode.REFUSED),
        (ResourceExhaustedError, ExitCode.REFUSED),
        (DataLossError, ExitCode.DAMAGED),
        (ServerError, ExitCode.FAILED),
    ],
)
def test_exit_codes(kind: type[ReputError], code: ExitCode) -> None:
    """Each kind of failure has its own exit code for scripts."""
    assert code_of(kind("text", code=grpc.StatusCode.UNKNOWN)) is code


def test_all_codes_are_documented() -> None:
    """Each exit code has a meaning, and the codes of `serve` are the codes of the process shell."""
    assert set(MEANINGS) == set(ExitCode)
    assert set(SERVE_MEANINGS) == {*map(int, ServeCode), ExitCode.INTERRUPTED}
