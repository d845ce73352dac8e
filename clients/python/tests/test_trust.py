# SPDX-License-Identifier: Apache-2.0
"""TLS and tokens: certificates from files and from memory, a name that is not the address, tokens that change."""

import contextlib
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import reput_client
from reput_client import Options, RetryPolicy, aio

from clients.python.tests.support import LIMIT_S, Log, serving
from tests.support.certificates import OPENSSL, self_signed

ONCE = RetryPolicy(retries=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Keys and certificates of a server and a client, both for localhost."""
    if OPENSSL is None:
        pytest.skip("openssl makes the certificates")
    return self_signed(tmp_path_factory.mktemp("tls"), "server", "client")


@contextlib.contextmanager
def guarded(files: dict[str, Path], log: Log) -> Iterator[int]:
    """A log that wants to see the client's certificate. Gives its port on 127.0.0.1."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([log.handler()])
    pair = (files["server.key"].read_bytes(), files["server.pem"].read_bytes())
    trusted = files["client.pem"].read_bytes()
    credentials = grpc.ssl_server_credentials([pair], root_certificates=trusted, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("kind", ["file", "pem"])
async def test_mutual_tls_to_a_server_of_another_name(files: dict[str, Path], kind: str) -> None:
    """Certificates come from files or from memory. `server_name` allows a certificate for localhost at an address."""
    given = {"ca": files["server.pem"], "certificate": files["client.pem"], "key": files["client.key"]}
    trust: dict[str, Any] = {
        f"{name}_{kind}": str(file) if kind == "file" else file.read_bytes() for name, file in given.items()
    }
    log = Log()
    with guarded(files, log) as port:
        options = {"commitlog": f"127.0.0.1:{port}", "retry": ONCE, **trust}
        with reput_client.connect(**options) as client, client.producer() as producer:
            assert isinstance(producer.send("t", b"unnamed").exception(LIMIT_S), reput_client.UnavailableError)
        with reput_client.connect(server_name="localhost", **options) as client, client.producer() as producer:
            producer.send("t", b"sync").result(LIMIT_S)
        async with aio.connect(server_name="localhost", **options) as client, client.producer() as producer:
            await (await producer.send("t", b"async"))
    assert [message.body for message in log.stored] == [b"sync", b"async"]


def test_a_token_that_changes(caplog: pytest.LogCaptureFixture) -> None:
    """The function is called before each call. Its failure is logged, and the call is made without a token."""
    tokens = iter(["first", "second"])
    log = Log(lambda number, _: ConnectionError() if number == 0 else None)
    with serving(log) as target:
        retry = RetryPolicy(delay_min_s=0.01, delay_max_s=0.02)
        with reput_client.connect(commitlog=target, token=lambda: next(tokens), retry=retry) as client:
            with client.producer() as producer:
                producer.send("t", b"x").result(LIMIT_S)
            assert ("authorization", "Bearer second") in log.metadata
            with client.producer() as producer:
                producer.send("t", b"x").result(LIMIT_S)
    assert "authorization" not in dict(log.metadata)
    assert "token() failed" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ca_file": "system", "ca_pem": b"x"}, "ca_file and ca_pem are both given"),
        ({"ca_pem": b"x", "key_file": "x", "key_pem": b"x"}, "key_file and key_pem are both given"),
        ({"ca_pem": "text"}, "ca_pem is of type str: expected bytes"),
        ({"certificate_pem": b"x"}, "certificate_pem needs ca_file or ca_pem"),
        ({"server_name": "log"}, "server_name needs ca_file or ca_pem"),
        ({"token": 7}, "token is of type int: expected a str, or a function"),
    ],
)
def test_what_cannot_be_meant(arguments: dict[str, Any], words: str) -> None:
    """It is refused when the options are made."""
    with pytest.raises((ValueError, TypeError), match=words):
        reput_client.connect(**arguments)


def test_secrets_are_not_shown() -> None:
    """The repr of an object may be logged."""
    shown = repr(Options(ca_pem=b"public", key_pem=b"hidden", token="hidden"))
    assert "hidden" not in shown
    assert "public" in shown


def test_the_name_comes_from_the_environment() -> None:
    """As the other addresses do."""
    options = Options.load({"ca_pem": b"x"}, {"REPUT_CLIENT_SERVER_NAME": "log"})
    assert ("grpc.ssl_target_name_override", "log") in options.channel_options("10.0.0.7:7101")


def test_a_call_names_for_whom_it_is_made() -> None:
    """The name is asked for at each call, is of ASCII characters alone, and cut."""
    people = iter(["anna@example.com", "Jörg\n", "x" * 1_000])
    options = Options(on_behalf_of=lambda: next(people))
    assert [dict(options.metadata())["reput-on-behalf-of"] for _ in range(3)] == [
        "anna@example.com", "J%C3%B6rg%0A", "x" * 100
    ]  # fmt: skip
    assert Options().metadata() == ()
    with pytest.raises(TypeError, match="on_behalf_of is of type int: expected a str, or a function"):
        Options(on_behalf_of=7)  # type: ignore[arg-type]


def test_the_shard_of_all_calls() -> None:
    """The metadata name the shard, also from the environment. A name that can be none is refused."""
    assert Options(shard="b").metadata() == (("reput-shard", "b"),)
    assert Options.load({}, {"REPUT_CLIENT_SHARD": "a-1"}).shard == "a-1"
    for name in ("a b", "a:b", "ä", "a\n", "x" * 101):
        with pytest.raises(ValueError, match="shard is"):
            Options(shard=name)
