# SPDX-License-Identifier: Apache-2.0
"""The core of changes: outcomes of errors, places, signatures, and the pages with hostile text in each field."""

import base64
from datetime import UTC, datetime

import grpc
import msgspec
import pytest
from reput.common.v1.error_reason_pb2 import ErrorReason
from reput_client import ReputError
from starlette.requests import Request

from services.console.ask.store import NO_CONNECTION
from services.console.change.place import Place, place_of
from services.console.change.position import Move
from services.console.change.prepared import UNKNOWN_REASONS, number_of, outcome_of
from services.console.change.replay import LETTERS_MAX, Selected
from services.console.pages.change import Input, Preview, Receipt, address, digest
from services.console.web.forms import RECEIPT_CHARACTERS_MAX, Signer
from services.console.web.gate import TARGET_CHARACTERS_MAX
from services.console.web.proxies import CALLER, Caller
from services.console.web.rendering import Renderer
from tests.console.filling import HOSTILE, SCRIPT

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
CODES = grpc.StatusCode


def request_of(cookies: str = "", *, name: str = "") -> Request:
    """Return a request with cookies of port 7300, of a reader that a proxy may have named."""
    raw = [(b"host", b"127.0.0.1:7300"), (b"cookie", cookies.encode())]
    scope = {"type": "http", "scheme": "http", "server": ("127.0.0.1", 7300), "headers": raw, "method": "POST"}
    return Request({**scope, CALLER: Caller("127.0.0.1", "http", name)})


def test_outcomes_of_errors() -> None:
    """Only an answer, or a connection that was never made, says that nothing was done."""
    known = {
        CODES.INVALID_ARGUMENT: "not_done",
        CODES.PERMISSION_DENIED: "not_done",
        CODES.UNAUTHENTICATED: "not_done",
        CODES.UNIMPLEMENTED: "not_done",
        CODES.UNAVAILABLE: "unknown",
        CODES.DEADLINE_EXCEEDED: "unknown",
        CODES.CANCELLED: "unknown",
        CODES.INTERNAL: "unknown",
        CODES.UNKNOWN: "unknown",
    }
    for code, outcome in known.items():
        assert outcome_of(ReputError("text", code=code)) == outcome, code
    assert outcome_of(ReputError(f"{NO_CONNECTION}; …", code=CODES.UNAVAILABLE)) == "not_done"
    reasons = {name.removeprefix("ERROR_REASON_") for name, _ in ErrorReason.items()}
    assert reasons >= UNKNOWN_REASONS
    for reason in ("NOT_PERMITTED", "GROUP_NOT_FOUND", "QUOTA_EXCEEDED", "NOT_LEADER", "TRANSACTION_ENDED"):
        assert outcome_of(ReputError("text", code=CODES.UNAVAILABLE, reason=reason)) == "not_done", reason
    for reason in ("NOT_DURABLE_YET", "DEPENDENCY_UNAVAILABLE", "STOPPING"):
        assert outcome_of(ReputError("text", code=CODES.UNAVAILABLE, reason=reason)) == "unknown", reason


@pytest.mark.parametrize(
    ("to", "at", "place"),
    [
        ("earliest", "", Place("earliest")),
        ("latest", "ignored", Place("latest")),
        ("time", "-1h", Place("time", "1795690800000")),
        ("time", "1795690800000", Place("time", "1795690800000")),
        ("time", " 2026-11-26T12:00+01:00 ", Place("time", "1795690800000")),
        ("offset", "0/17", Place("offset", "0/17")),
        ("offset", " 03/0017 ", Place("offset", "3/17")),
    ],
)
def test_places(to: str, at: str, place: Place) -> None:
    """A place is exact, and names itself as the command line does."""
    found = place_of({"to": to, "at": at}, NOW)
    assert found == place
    assert place_of({"to": found.kind, "at": found.at}, NOW) == found
    assert found.text.startswith("offset" if to == "offset" else "the ")


@pytest.mark.parametrize(
    ("to", "at"),
    [
        ("", ""), ("Earliest", ""), ("time", ""), ("time", "soon"), ("time", "-60000d"), ("offset", "17"),
        ("offset", "0/-1"), ("offset", "0/" + "9" * 19), ("offset", "1/2/3"), ("offset", "٣/٤"), ("\0", "\0"),
    ],
)  # fmt: skip
def test_wrong_places(to: str, at: str) -> None:
    """A text that is no place is refused with its field."""
    with pytest.raises(ValueError, match=r"(to|at) is|no time"):
        place_of({"to": to, "at": at}, NOW)


def test_what_a_move_costs() -> None:
    """Messages before the new place are passed over, messages behind it come again, and no position costs nothing."""
    assert [(move.passed_count, move.repeated_count) for move in (Move(0, 5, 9), Move(0, 9, 5), Move(0, None, 9))] == [
        (4, 0), (0, 4), (0, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "1000001", "٣", "9" * 30])
def test_wrong_numbers(text: str) -> None:
    """A number out of its bounds is refused with its value."""
    with pytest.raises(ValueError, match="rate is"):
        number_of({"rate": text}, "rate", low=1, high=1_000_000)
    assert number_of({}, "rate", low=1, high=9) is None
    assert number_of({"rate": " 7 "}, "rate", low=1, high=9) == 7


def test_letters_of_a_confirmation() -> None:
    """A confirmation replays as many letters as the rate takes in ten seconds, up to its bound."""
    counts = [Selected("g", (), "", rate, 0).count_max for rate in (1, 50, 10_000)]
    assert counts == [10, 500, LETTERS_MAX]


def test_signatures() -> None:
    """A token is of its path, arguments, state, cookie and session, in whichever order the arguments come."""
    signer = Signer(request_of("reput_change_7300=c; reput_session_7300=s"))
    carried = [("topic", "orders"), ("to", "latest")]
    token = signer.token("/groups/a/reset", carried, "1")
    assert token == signer.token("/groups/a/reset", carried[::-1], "1")
    others = {
        signer.token("/groups/b/reset", carried, "1"),
        signer.token("/groups/a/reset", [("topic", "orders"), ("to", "earliest")], "1"),
        signer.token("/groups/a/reset", [("topic", "ordersto"), ("", "latest")], "1"),
        signer.token("/groups/a/reset", carried, "2"),
        Signer(request_of("reput_change_7300=d; reput_session_7300=s")).token("/groups/a/reset", carried, "1"),
        Signer(request_of("reput_change_7300=c; reput_session_7300=t")).token("/groups/a/reset", carried, "1"),
        Signer(request_of("reput_change_7300=c")).token("/groups/a/reset", carried, "1"),
        Signer(request_of("reput_change_7300=c; reput_session_7300=s", name="anna")).token(
            "/groups/a/reset", carried, "1"
        ),
        Signer(request_of("reput_change_7301=c; reput_session_7300=s")).token("/groups/a/reset", carried, "1"),
    }
    assert token not in others
    assert len(others) == 9


def test_a_receipt_fits_into_an_address() -> None:
    """A receipt with texts of any length is within the bound of an address, and of this browser alone."""
    signer = Signer(request_of("reput_change_7300=c"))
    long = "\u202eä<b>" * 1_000
    for receipt in (
        Receipt(commands=(), title="Move", outcome="done", text="Done.", back="/groups/a"),
        Receipt(commands=(long,) * 3, title="Move " + "g" * 255, outcome="unknown", text=long, back="/a", again="/b"),
    ):
        text = signer.receipt_text(receipt)
        assert len("/receipt.json?of=" + text) < min(RECEIPT_CHARACTERS_MAX + 100, TARGET_CHARACTERS_MAX)
        found = signer.receipt_of(text)
        assert found is not None
        assert (found.outcome, found.back) == (receipt.outcome, receipt.back)
        assert found.text == receipt.text[: len(found.text)] != ""
        assert Signer(request_of("reput_change_7300=d")).receipt_of(text) is None
        assert Signer(request_of()).receipt_of(text) is None
    encoded, _, signature = text.partition(".")
    forged = base64.urlsafe_b64encode(msgspec.json.encode(receipt) + b" ").decode()
    for wrong in (f"{forged}.{signature}", f"{encoded}.", encoded, f".{signature}", "ä.ö", "", "."):
        assert signer.receipt_of(wrong) is None, wrong


def test_pages_with_hostile_text_in_each_field() -> None:
    """No field of a preview or a receipt becomes markup, and an address can't leave the console."""
    renderer, hostile = Renderer(), HOSTILE
    preview = Preview(
        commands=(hostile,), title=hostile, name=hostile, back=address("groups", hostile), refusal=hostile,
        inputs=(Input(hostile, "Where", hostile, hint=hostile), Input("to", "To", hostile, ((hostile, hostile),))),
        summary=hostile, warnings=(hostile,), columns=("Topic",), rows=((hostile, 5, None),), verb="Do it",
        carried=((hostile, hostile),), state=digest([hostile]),
    )  # fmt: skip
    receipts = [
        Receipt(commands=(hostile,), title=hostile, outcome=outcome, text=hostile, back=address(hostile), again="/")
        for outcome in ("done", "not_done", "unknown")
    ]
    missing = Preview(commands=(), title=hostile, name=hostile, back="/", is_found=False)
    for page in (preview, missing, *receipts):
        html = renderer.page(page, path="/x", twin="/x.json", can_log_out=False, form_token="t", has_changes=True)
        assert SCRIPT not in html
        assert "<img" not in html
        assert 'href="//' not in html
    assert address("groups", "//evil.example/..") == "/groups/%2F%2Fevil.example%2F.."
    assert [receipt.status for receipt in receipts] == [200, 409, 503]
