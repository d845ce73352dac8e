# SPDX-License-Identifier: Apache-2.0
"""LateServicer: a server knows all methods before the servicer is there, and calls those that it has then."""

import pytest

from libs.runtime.rpc.late import LateServicer


class Reader:
    """Made when something was opened."""

    def __init__(self, content: str) -> None:
        self.content = content

    async def Read(self, request: str, context: object) -> str:  # noqa: N802
        """The content."""
        return self.content + request


class Status:
    """Needs nothing."""

    async def GetStatus(self, request: str, context: object) -> str:  # noqa: N802
        """Answers always."""
        return "recovering"


async def test_methods_are_found_before_there_is_a_servicer() -> None:
    """Whoever registers them early calls those of the servicer that is made later."""
    servicer = LateServicer(Reader, early=Status())
    read, status = servicer.Read, servicer.GetStatus
    assert await status("", None) == "recovering"
    servicer.made = Reader("a")
    assert await read("b", None) == "ab"


def test_it_offers_what_both_have_and_no_more() -> None:
    """A server asks by name, and by listing."""
    servicer = LateServicer(Reader, early=Status())
    assert {name for name in dir(servicer) if name[0].isupper()} == {"Read", "GetStatus"}
    with pytest.raises(AttributeError):
        servicer.Write  # noqa: B018
