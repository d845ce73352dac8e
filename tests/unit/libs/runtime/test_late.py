# SPDX-License-Identifier: Apache-2.0
"""LateServicer: a server knows all methods before the servicer exists, and calls the servicer's methods later."""

import pytest

from libs.runtime.rpc.late import LateServicer


class Reader:
    """A servicer that is made when its content is open."""

    def __init__(self, content: str) -> None:
        self.content = content

    async def Read(self, request: str, context: object) -> str:  # noqa: N802
        """The content."""
        return self.content + request


class Status:
    """A servicer that needs no open content."""

    async def GetStatus(self, request: str, context: object) -> str:  # noqa: N802
        """Answers always."""
        return "recovering"


async def test_methods_are_found_before_there_is_a_servicer() -> None:
    """Methods that are registered early call the methods of the servicer that is made later."""
    servicer = LateServicer(Reader, early=Status())
    read, status = servicer.Read, servicer.GetStatus
    assert await status("", None) == "recovering"
    servicer.made = Reader("a")
    assert await read("b", None) == "ab"


def test_it_offers_what_both_have_and_no_more() -> None:
    """LateServicer lists the methods of both servicers, and has no other method."""
    servicer = LateServicer(Reader, early=Status())
    assert {name for name in dir(servicer) if name[0].isupper()} == {"Read", "GetStatus"}
    with pytest.raises(AttributeError):
        servicer.Write  # noqa: B018
