# SPDX-License-Identifier: Apache-2.0
"""Page tokens."""

import pytest

from services.commitlog.errors import BadPageToken
from services.commitlog.rpc import page_token


@pytest.mark.parametrize("position", ["orders", "%RETRY%x", "12345678901234567890", "ä"])
def test_round_trip(position: str) -> None:
    """A token gives back its position, is plain text, and is empty for the first page."""
    token = page_token.encode(position, scope="topics")
    assert token.isascii()
    assert page_token.decode(token, scope="topics") == position
    assert page_token.decode("", scope="topics") == ""


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "not base64!",
        "AAAA",
        page_token.encode("orders", scope="topics")[:-2],
        page_token.encode("orders", scope="other"),
        "ä",
        "=" * 40,
    ],
)
def test_foreign_tokens(token: str) -> None:
    """A token of another list, a damaged one or plain text is refused by field."""
    with pytest.raises(BadPageToken) as caught:
        page_token.decode(token, scope="topics")
    assert caught.value.field == "page_token"


@pytest.mark.parametrize("position", ["9" * 5_000, "9" * 20, "9" * 300, "-1", "1e3", "٣", "orders"])
def test_forged_numbers(position: str) -> None:
    """A token with a right checksum and a position that no list gave, as anybody can make it."""
    with pytest.raises(BadPageToken) as caught:
        page_token.decode_number(page_token.encode(position, scope="segments"), scope="segments")
    assert caught.value.field == "page_token"


def test_numbers() -> None:
    """The largest physical offset is one, and no token is the begin."""
    for number in (0, 7, 2**63 - 1):
        assert page_token.decode_number(page_token.encode(str(number), scope="segments"), scope="segments") == number
    assert page_token.decode_number("", scope="segments") == 0


def test_every_changed_character_is_found() -> None:
    """No single changed character makes another valid token."""
    token = page_token.encode("some-topic", scope="topics")
    for index in range(len(token)):
        changed = token[:index] + ("B" if token[index] == "A" else "A") + token[index + 1 :]
        try:
            assert page_token.decode(changed, scope="topics") == "some-topic"  # unused bits of the last character
        except BadPageToken:
            continue
