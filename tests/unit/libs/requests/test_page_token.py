# SPDX-License-Identifier: Apache-2.0
"""Page tokens."""

import pytest

from libs.requests.errors import BadPageToken
from libs.requests.page_token import decode_number, decode_token, encode_token


@pytest.mark.parametrize("position", ["orders", "%RETRY%x", "12345678901234567890", "ä"])
def test_round_trip(position: str) -> None:
    """A token gives back its position, and is plain text."""
    token = encode_token("topics", (1,), position)
    assert token.isascii()
    assert decode_token("topics", (1,), token, str) == position
    assert decode_token("topics", (1,), "", str) is None


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "not base64!",
        "AAAA",
        encode_token("topics", (1,), "orders")[:-2],
        encode_token("other", (1,), "orders"),
        encode_token("topics", (2,), "orders"),
        encode_token("topics", (1,), b"\xff"),
        encode_token("topics", (1,), 7),
        "ä",
        "=" * 40,
    ],
)
def test_foreign_tokens(token: str) -> None:
    """A token of another list, a damaged token and plain text are refused by field."""
    with pytest.raises(BadPageToken) as caught:
        decode_token("topics", (1,), token, str)
    assert caught.value.field == "page_token"


@pytest.mark.parametrize("position", ["9" * 5_000, 2**64 - 1, 2**63, -1, 1e3, "3", None, "orders", [3]])
def test_forged_numbers(position: object) -> None:
    """A token with a right checksum and a position that no list gave is refused; any caller can make it."""
    with pytest.raises(BadPageToken) as caught:
        decode_number("segments", (), encode_token("segments", (), position))
    assert caught.value.field == "page_token"


def test_numbers() -> None:
    """The largest physical offset is valid, and an empty token is the begin."""
    for number in (0, 7, 2**63 - 1):
        assert decode_number("segments", (), encode_token("segments", (), number)) == number
    assert decode_number("segments", (), "") == 0


def test_every_changed_character_is_found() -> None:
    """No single changed character makes another valid token."""
    token = encode_token("topics", (), "some-topic")
    for index in range(len(token)):
        changed = token[:index] + ("B" if token[index] == "A" else "A") + token[index + 1 :]
        try:
            assert decode_token("topics", (), changed, str) == "some-topic"  # unused bits of the last character
        except BadPageToken:
            continue
