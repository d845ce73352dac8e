# SPDX-License-Identifier: Apache-2.0
"""Waits and retries of clients, names with a namespace, and signatures."""

import hashlib
import hmac

import pytest

from services.commitlog.engine.write.gate import Reason
from services.gateway.engine.names import shown_name, stored_name
from services.gateway.engine.retries import Exponential, is_misread, of_consumer
from services.gateway.engine.signature import Signature
from services.gateway.engine.waiting import wait_s
from services.gateway.errors import Refused
from services.gateway.rpc.statuses import CODES
from services.gateway.rpc.wire import messaging_pb2 as wire


@pytest.mark.parametrize(
    ("namespace", "name", "stored"),
    [
        ("", "orders", "orders"),
        ("shop", "orders", "shop%orders"),
        ("shop", "%DLQ%billing", "%DLQ%shop%billing"),
        ("", "%DLQ%billing", "%DLQ%billing"),
        ("shop", "%RETRY%billing", "%RETRY%shop%billing"),
    ],
)
def test_names_with_a_namespace(namespace: str, name: str, stored: str) -> None:
    """Names with a namespace have RocketMQ's form, in both directions."""
    assert stored_name(namespace, name) == stored
    assert shown_name(namespace, stored) == name


@pytest.mark.parametrize(
    ("asked_s", "remaining_s", "expected_s"),
    [
        (3.0, None, 3.0),
        (3.0, 6.0, 3.0),
        (30.0, 33.0, 20.0),
        (5.0, 4.0, 3.5),
        (None, 5.0, 3.5),
        (None, None, 20.0),
        (5.0, 0.2, 0.0),
        (0.0, 3.0, 0.0),
    ],
)
def test_a_receive_waits_as_long_as_its_caller_does(
    asked_s: float | None, remaining_s: float | None, expected_s: float
) -> None:
    """Without a time in the request the caller's deadline counts, as for simple consumers for Go.

    An answer is sent before the deadline.
    """
    assert wait_s(asked_s, remaining_s) == expected_s


def test_a_client_for_node_is_told_of_waits_that_grow() -> None:
    """A client for Node gets exponential waits, because it knows no other kind.

    Its invisible time after a failure is a thousandth of its intention.
    """
    assert of_consumer([10_000, 30_000, 7_200_000], is_node=True) == Exponential(10_000, 7_200_000, 2.0)
    assert of_consumer([5_000], is_node=True) == Exponential(5_000, 5_000, 1.0)
    assert of_consumer([1_000, 2_000], is_node=False) == [1_000, 2_000]
    assert is_misread(10, is_node=True)
    assert not is_misread(1_000, is_node=True)
    assert not is_misread(10, is_node=False)


def header(secret: str, date_time: str, *, key: str = "alice", is_upper: bool = False, more: str = "") -> str:
    """The authorization header of a client."""
    digits = hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()
    digits = digits.upper() if is_upper else digits
    return f"MQv2-HMAC-SHA1 Credential={key}{more}, SignedHeaders=x-mq-date-time, Signature={digits}"


@pytest.mark.parametrize("is_upper", [False, True])
@pytest.mark.parametrize("more", ["", "/region/service"])
def test_a_right_signature(is_upper: bool, more: str) -> None:
    """A signature is accepted with digits in either case, and with a region behind the key."""
    signature = Signature.parse(header("s", "20260101T000000Z", is_upper=is_upper, more=more))
    assert signature.key == "alice"
    signature.check([b"old", b"s"], "20260101T000000Z")


@pytest.mark.parametrize("text", ["", "Bearer x", "MQv2-HMAC-SHA1", "MQv2-HMAC-SHA1 x, =", "MQv2-HMAC-SHA1 " * 99])
def test_a_wrong_signature(text: str) -> None:
    """A signature of another time or secret, and a missing signature, are refused."""
    with pytest.raises(Refused, match=r"."):
        Signature.parse(text).check([b"s"], "t")
    for secrets, date_time in (([b"s"], "u"), ([b"r"], "t"), ([], "t")):
        with pytest.raises(Refused) as refused:
            Signature.parse(header("s", "t")).check(secrets, date_time)
        assert refused.value.code == "UNAUTHORIZED"


def test_every_code_is_one_of_the_protocol() -> None:
    """Every reason has a code with a number of the protocol; otherwise the client would see an internal error."""
    assert {f"CODE_{code}" for code in CODES.values()} <= set(wire.Code.keys())


def test_whatever_closes_the_log_has_a_code() -> None:
    """Each reason for which the log refuses a send has a code, and is no error of the gateway."""
    assert {reason.error_reason for reason in Reason} <= set(CODES)
