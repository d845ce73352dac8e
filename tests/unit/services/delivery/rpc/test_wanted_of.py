# SPDX-License-Identifier: Apache-2.0
"""The filter of a receive: filters with the same meaning are equal, and match messages as the Indexer does."""

from unittest.mock import Mock

import pytest
from reput.common.v1.message_pb2 import StoredMessage
from reput.delivery.v1.delivery_service_pb2 import ConsumeBegin, ReceiveRequest

from libs.requests.errors import BadArgument
from services.delivery.engine.ports.messages import Found, Wanted
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.stored import StoredContent
from services.delivery.rpc.settling import wanted_of


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("", "*"),
        ("*", "*"),
        (" * ", "*"),
        ("a", "a"),
        ("b||a", "a||b"),
        (" a || b ", "a||b"),
        ("a||b||a||", "a||b"),
        ("* || a", "*||a"),
        ("*||*", "*"),
    ],
)
def test_the_same_set_of_tags_is_the_same_filter(text: str, tags: str) -> None:
    """For any order, spaces and repeated tags."""
    assert wanted_of(ReceiveRequest(tag_expression=text)) == Wanted(tags)
    assert wanted_of(ConsumeBegin(tag_expression=text), "begin.") == Wanted(tags)


def test_spaces_around_a_condition_say_nothing() -> None:
    """Nor does a condition of spaces alone."""
    assert wanted_of(ReceiveRequest(where="  a = 1\n")) == wanted_of(ReceiveRequest(where="a = 1"))
    assert wanted_of(ReceiveRequest(where="  ")) == Wanted()


@pytest.mark.parametrize("text", ["||", " ", "|| ||", "\t"])
def test_an_expression_without_a_tag_is_refused(text: str) -> None:
    """At once, and the refusal names field and value."""
    with pytest.raises(BadArgument) as error:
        wanted_of(ConsumeBegin(tag_expression=text), "begin.")
    assert (error.value.field, error.value.value) == ("begin.tag_expression", text)


def found(**fields: object) -> Found:
    return Found(0, 0, 100, StoredContent(StoredMessage(**fields)))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        (Wanted(), True),
        (Wanted("a||b"), True),
        (Wanted("b||c"), False),
        (Wanted("*", "price > 10"), True),
        (Wanted("a", "price > 12"), False),
        (Wanted("*", "region = 'eu'"), False),
        (Wanted("*", "region IS NULL AND TAGS = 'a'"), True),
    ],
)
def test_a_message_is_compared_as_the_indexer_does(wanted: Wanted, passes: bool, is_text: bool) -> None:
    """By its tag and its properties, also if these are no text."""
    message = (
        found(properties={"TAGS": "a", "price": "12"})
        if is_text
        else found(raw_properties=b"TAGS\x01a\x02price\x0112\x02other\x01\xff\x02")
    )
    index = IndexClient(Mock())
    assert index.passes(message, wanted) is passes
    assert not index.passes(found(properties={}), Wanted("a"))
