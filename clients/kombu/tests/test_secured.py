# SPDX-License-Identifier: Apache-2.0
"""The transport and a store that asks for a token and speaks TLS, and the durability of a single log."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kombu
import kombu_reput  # noqa: F401 - makes reput:// known
import pytest
from kombu import Producer, Queue
from kombu.exceptions import OperationalError

from tests.support.certificates import OPENSSL, self_signed
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(OPENSSL is None, reason="there is no openssl")]

CALLED = {"commitlog": (), "indexer": ("commitlog",), "janitor": ("commitlog", "indexer"),
          "delivery": ("commitlog", "indexer")}  # fmt: skip
"""The services that each service calls."""
TOKEN = "p/ss:w@rd"
QUOTED = "p%2Fss%3Aw%40rd"
SECONDS = {"connect_timeout": 30}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of the store, which is its own authority. Another one, `other.pem`, is beside it."""
    return self_signed(tmp_path_factory.mktemp("certificates"), "store", "other")["store.pem"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: Path) -> Iterator[Store]:
    """A store of a single log whose services ask for a token and speak TLS."""
    directory = tmp_path_factory.mktemp("secured")
    token, config = directory / "token", directory / "reput.toml"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    lines = []
    for service, called in CALLED.items():
        own = {"tls_certificate_file": authority, "tls_key_file": authority.with_suffix(".key"), "token_file": token}
        own |= {f"{one}_tls_ca_file": authority for one in called}
        lines += [f"[{service}]", *(f'{setting} = "{path}"' for setting, path in own.items())]
    config.write_text("\n".join(lines) + "\n")
    flags = ("--config", str(config), "--listen-host", "localhost", "--delivery", "--delivery-port", "0")
    with store(directory / "data", *flags) as running:
        yield running


def url(running: Store, token: str, ca_file: Path | None) -> str:
    """Return a URL with a token, the addresses of the services, and the authority of their certificates."""
    options = [f"{name}={target}" for name, target in running.targets.items()]
    options += [f"ca_file={ca_file}"] if ca_file else []
    return f"reput://{token and f':{token}@'}localhost/secured?{'&'.join(options)}"


def test_a_token_and_an_authority_in_the_url(secured: Store, authority: Path) -> None:
    """A message goes round with both, with the token in the URL, among the options, or as Kombu's password."""
    whole, bare = url(secured, QUOTED, authority), url(secured, "", authority)
    for connection in (
        kombu.Connection(whole, **SECONDS),
        kombu.Connection(bare, transport_options={"token": TOKEN}, **SECONDS),
        kombu.Connection(bare, password=TOKEN, **SECONDS),
    ):
        with connection, connection.SimpleQueue("secured") as queue:
            connection.ensure_connection(max_retries=1)
            queue.put("x")
            message = queue.get(timeout=LIMIT_S)
            assert message.payload == "x"
            message.ack()


@pytest.mark.parametrize(("token", "is_known"), [("", True), ("wrong", True), (QUOTED, False)])
def test_without_one_of_them_there_is_no_connection(
    secured: Store, authority: Path, token: str, is_known: bool
) -> None:
    """Without the token, with a wrong one, or without trust in the certificate, an error says so."""
    ca_file = authority if is_known else authority.with_name("other.pem")
    with kombu.Connection(url(secured, token, ca_file), connect_timeout=3) as connection:
        with pytest.raises(OperationalError) as raised:
            connection.ensure_connection(max_retries=1, interval_start=0)
        assert ("token" if is_known else "UNAVAILABLE") in f"{raised.value!r}"
        assert TOKEN not in str(raised.value)
        assert TOKEN not in connection.as_uri()
        assert QUOTED not in connection.as_uri()


def test_celery_s_worker_with_a_token_and_tls(secured: Store, authority: Path, tmp_path: Path) -> None:
    """A worker of Celery and a program with this URL run a task, and none of the worker's lines has the token."""
    broker = url(secured, QUOTED, authority)
    (tmp_path / "safe.py").write_text(
        "import kombu_reput\n"
        "from celery import Celery\n"
        f"app = Celery('safe', broker={broker!r}, backend='rpc://')\n"
        "@app.task\n"
        "def add(x, y):\n"
        "    return x + y\n"
    )
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "safe", "worker", "-P", "solo", "-l", "DEBUG"],
            cwd=tmp_path, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        program = f"import safe; print(safe.add.delay(3, 4).get(timeout={LIMIT_S}))"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
        told = (tmp_path / "log").read_text()
        assert done.stdout == "7\n", done.stderr + told
        assert TOKEN not in told
        assert QUOTED not in told
    finally:
        worker.kill()
        worker.wait(LIMIT_S)


def test_a_single_log_refuses_to_replicate(secured: Store, authority: Path) -> None:
    """`durability=replicated` is a connection error where no log follows; a transient message and others are stored."""
    whole, queue = url(secured, QUOTED, authority), Queue("copies")
    options = {"durability": "replicated", "timeout_s": 2}
    with kombu.Connection(whole, transport_options=options, **SECONDS) as connection:
        producer = Producer(connection.channel())
        with pytest.raises(connection.recoverable_connection_errors, match="NOT_ENOUGH_REPLICAS"):
            producer.publish(1, routing_key=queue.name, declare=[queue])
        producer.publish(2, routing_key=queue.name, delivery_mode=1)
    with kombu.Connection(f"{whole}&durability=local_disk", **SECONDS) as connection:
        Producer(connection.channel()).publish(3, routing_key=queue.name)
        found: list[int] = []
        with connection.SimpleQueue(queue) as simple:
            while len(found) < 2:
                message = simple.get(timeout=LIMIT_S)
                found.append(message.payload)
                message.ack()
        assert found == [2, 3]
