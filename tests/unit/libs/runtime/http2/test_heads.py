# SPDX-License-Identifier: Apache-2.0
"""Header fields of calls, as PROTOCOL-HTTP2.md of gRPC has them."""

import grpc
import pytest

from libs.runtime.http2.framing import CallRefused
from libs.runtime.http2.heads import Head, HttpRefused, percent_encoded, timeout_s_of, trailers

FIELDS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/reput.commitlog.v1.AppendService/Append"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc+proto"),
    (b"grpc-timeout", b"250m"),
    (b"user-agent", b"grpc-go/1.85"),
    (b"traceparent", b"00-1-2-03"),
    (b"blob-bin", b"AAEC/w"),
)


def without(name: bytes, *more: tuple[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    return (*(field for field in FIELDS if field[0] != name), *more)


def test_a_head() -> None:
    """The fields of gRPC itself are no metadata; the values of -bin are bytes, padded or not."""
    head = Head(FIELDS)
    head.check()
    assert (head.method, head.timeout_s) == ("/reput.commitlog.v1.AppendService/Append", 0.25)
    assert head.invocation_metadata == (
        ("user-agent", "grpc-go/1.85"),
        ("traceparent", "00-1-2-03"),
        ("blob-bin", b"\x00\x01\x02\xff"),
    )
    assert Head(without(b"blob-bin", (b"blob-bin", b"AAEC/w=="))).invocation_metadata[-1] == ("blob-bin", b"\0\1\2\xff")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3600.0), (b"2M", 120.0), (b"3S", 3.0), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9), (b"0n", 0.0)],
)
def test_timeouts(value: bytes, seconds: float) -> None:
    """A grpc-timeout in each unit is converted to seconds."""
    assert timeout_s_of(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"5", b"S", b"-1S", b"123456789S", b"1s", b"1.5S", b"1S "])
def test_timeouts_that_are_none(value: bytes) -> None:
    """A bad time-out is refused by the name of its field."""
    with pytest.raises(CallRefused, match="grpc-timeout"):
        timeout_s_of(value)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (without(b":method", (b":method", b"GET")), 405),
        (without(b"content-type"), 415),
        (without(b"content-type", (b"content-type", b"application/json")), 415),
        (without(b"content-type", (b"content-type", b"application/grpc-web")), 415),
    ],
)
def test_what_is_no_call(fields: tuple[tuple[bytes, bytes], ...], status: int) -> None:
    """A request of a browser or probe gets an HTTP status."""
    with pytest.raises(HttpRefused) as caught:
        Head(fields)
    assert caught.value.status == status


def test_metadata_that_is_not_in_base64() -> None:
    """Binary metadata that is not base64 is refused by the name of its field."""
    with pytest.raises(CallRefused, match="blob-bin"):
        _ = Head(without(b"blob-bin", (b"blob-bin", b"?"))).invocation_metadata


def test_texts() -> None:
    """Bytes that are not printable ASCII, and the percent sign, are written in hexadecimal."""
    assert percent_encoded("50 % of Überfluß\n~") == b"50 %25 of %C3%9Cberflu%C3%9F%0A~"
    assert trailers(grpc.StatusCode.NOT_FOUND, "no", (("a-bin", b"\0\1"), ("b", "c"))) == [
        (b"grpc-status", b"5"),
        (b"grpc-message", b"no"),
        (b"a-bin", b"AAE"),
        (b"b", b"c"),
    ]
