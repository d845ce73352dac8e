# SPDX-License-Identifier: Apache-2.0
"""Values that callers see: what a stored message tells, and what counts as a time."""

import pytest
from reput.common.v1 import message_pb2
from reput_client import Message


def stored(**fields: object) -> Message:
    """A message as the store hands it out."""
    return Message(message_pb2.StoredMessage(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a b", ("a", "b")),
        ("  a   b ", ("a", "b")),
        ("", ()),
        (" ", ()),
        ("東京\u3000支店", ("東京\u3000支店",)),
        ("tab\there new\nline no\u00a0break", ("tab\there", "new\nline", "no\u00a0break")),
        ("a\x1cb\u2028c\r", ("a\x1cb\u2028c\r",)),
    ],
)
def test_spaces_alone_separate_keys(text: str, keys: tuple[str, ...]) -> None:
    """Keys are what the index has: other white space is part of a key, and runs of spaces are one."""
    assert stored(properties={"KEYS": text}).keys == keys
