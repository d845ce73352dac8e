# SPDX-License-Identifier: Apache-2.0
"""Admission by role and token, with and without a token for clients. tests/e2e/test_roles.py tests all methods."""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from libs.runtime.settings import ServerConfig
from libs.runtime.trust import tokens
from libs.runtime.trust.tokens import TokenFile, ensure_local_token
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime.servers import APPEND, DISPATCH, GET_STATUS, Served, details_of, serving

pytestmark = pytest.mark.usefixtures("each_front")

Metadata = tuple[tuple[str, str], ...]
TRIM = "/reput.indexer.v1.IndexService/TrimTo"


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


@pytest.fixture
def token_file(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a file with a token of this name."""

    def make(name: str) -> Path:
        (tmp_path / name).write_text(f"{name}-token\n")
        return tmp_path / name

    return make


async def outcome(served: Served, method: str, metadata: Metadata) -> str:
    """OK, or the reason of the refusal with the role that it names."""
    try:
        if method == DISPATCH:
            await served.channel.unary_stream(method)(b"", metadata=metadata, timeout=LIMIT_S).read()
        else:
            await served.call(method, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "UNIMPLEMENTED"
        info = details_of(error)[0]
        return " ".join(filter(None, (info.reason, info.metadata.get("role"))))
    return "OK"


async def test_without_settings_only_clients_are_let_in() -> None:
    """By default every caller is a client, and the methods of services need the token of the machine's user."""
    async with serving() as served:
        assert await outcome(served, APPEND, ()) == "OK"
        assert await outcome(served, GET_STATUS, bearer("anything")) == "OK"
        assert await outcome(served, DISPATCH, ()) == "NOT_PERMITTED service"
        assert await outcome(served, DISPATCH, bearer("anything")) == "NOT_PERMITTED service"
        assert await outcome(served, TRIM, ()) == "NOT_PERMITTED service", "although it is not served here"
        local = bearer(TokenFile("token", ensure_local_token()).shown)
        assert await outcome(served, DISPATCH, local) == "OK"
        assert await outcome(served, TRIM, local) == "UNIMPLEMENTED"


async def test_each_token_gives_its_role(token_file: Callable[[str], Path]) -> None:
    """With all three tokens a service or an operator is a client, too, and the local token counts nothing."""
    config = ServerConfig(
        port=0,
        token_file=token_file("client"),
        service_token_file=token_file("service"),
        operator_token_file=token_file("operator"),
    )
    local = TokenFile("token", ensure_local_token()).shown
    expected = {
        "": ("UNAUTHENTICATED", "UNAUTHENTICATED"),
        "wrong": ("UNAUTHENTICATED", "UNAUTHENTICATED"),
        local: ("UNAUTHENTICATED", "UNAUTHENTICATED"),
        "client-token": ("OK", "NOT_PERMITTED service"),
        "service-token": ("OK", "OK"),
        "operator-token": ("OK", "NOT_PERMITTED service"),
    }
    async with serving(config) as served:
        for token, outcomes in expected.items():
            metadata = bearer(token) if token else ()
            found = (await outcome(served, APPEND, metadata), await outcome(served, DISPATCH, metadata))
            assert found == outcomes, token


async def test_one_file_may_give_several_roles(token_file: Callable[[str], Path]) -> None:
    """A file may give several roles, as the local token does."""
    path = token_file("both")
    async with serving(ServerConfig(port=0, service_token_file=path, operator_token_file=path)) as served:
        rebuild = "/reput.indexer.v1.RebuildService/RebuildIndexes"
        assert await outcome(served, DISPATCH, bearer("both-token")) == "OK"
        assert await outcome(served, rebuild, bearer("both-token")) == "UNIMPLEMENTED"


async def test_tokens_are_renewed_while_it_serves(
    token_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a restart the new token counts at once, and the old token as long as it is in the file."""
    monkeypatch.setattr(tokens, "CHECK_INTERVAL_S", 0.0)
    path = token_file("client")
    async with serving(ServerConfig(port=0, token_file=path)) as served:
        assert await outcome(served, APPEND, bearer("client-token")) == "OK"
        path.write_text("renewed\nclient-token\n")
        assert await outcome(served, APPEND, bearer("renewed")) == "OK"
        assert await outcome(served, APPEND, bearer("client-token")) == "OK"
        path.write_text("renewed\n")
        assert await outcome(served, APPEND, bearer("renewed")) == "OK"
        assert await outcome(served, APPEND, bearer("client-token")) == "UNAUTHENTICATED"
