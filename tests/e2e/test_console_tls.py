# SPDX-License-Identifier: Apache-2.0
"""The console of a store with TLS: its pages, and the ends of the certificates that the services show."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client

from tests.console.filling import KEY, fill
from tests.support.certificates import OPENSSL, self_signed
from tests.support.console import console_of
from tests.support.reput_up import Store, store

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(OPENSSL is None, reason="there is no openssl")]

DAYS = {"long": 90, "soon": 10, "short": 2}
"""For how many days each certificate is good: the Indexer's and Delivery's end soon."""
CERTIFICATES = {"commitlog": "long", "indexer": "soon", "janitor": "long", "delivery": "short"}
CALLED = {"commitlog": (), "indexer": ("commitlog",), "janitor": ("commitlog", "indexer"),
          "delivery": ("commitlog", "indexer")}  # fmt: skip
"""The services that each service calls."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Keys and certificates, and `all.pem` with all authorities."""
    directory = tmp_path_factory.mktemp("certificates")
    found: dict[str, Path] = {}
    for name, days in DAYS.items():
        found |= self_signed(directory, name, days=days)
    found["all.pem"] = directory / "all.pem"
    found["all.pem"].write_bytes(b"".join(found[f"{name}.pem"].read_bytes() for name in DAYS))
    return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, files: dict[str, Path]) -> Iterator[Store]:
    """A store whose services speak TLS with each other and with all callers."""
    directory = tmp_path_factory.mktemp("secured")
    config = directory / "reput.toml"
    lines = []
    for service, name in CERTIFICATES.items():
        own = {"tls_certificate_file": files[f"{name}.pem"], "tls_key_file": files[f"{name}.key"]}
        own |= {f"{called}_tls_ca_file": files["all.pem"] for called in CALLED[service]}
        lines += [f"[{service}]", *(f'{setting} = "{path}"' for setting, path in own.items())]
    config.write_text("\n".join(lines) + "\n")
    flags = ("--config", str(config), "--listen-host", "localhost", "--delivery", "--delivery-port", "0")
    with store(directory / "data", *flags) as running:
        with reput_client.connect(**running.targets, ca_file=str(files["all.pem"])) as client:
            fill(client, count=20)
        yield running


def test_certificates_of_a_real_store(secured: Store, files: dict[str, Path]) -> None:
    """Each address has the end of the certificate that it shows, marked as `reput check` marks it."""
    flags = ("--store-ca-file", str(files["all.pem"]), "--store-timeout-ms", "60000")
    with console_of(secured.targets, *flags) as console:
        assert console.json(f"/find.json?q={KEY}")["outcome"] == "found"
        page = console.json("/store.json")
        assert page["gaps"] == []
        found = {one["name"]: (one["days_left"], one["health"]) for one in page["certificates"]}
        health = {"long": "good", "soon": "problem", "short": "away"}
        assert found == {
            secured.targets[service]: (DAYS[name] - 1, health[name]) for service, name in CERTIFICATES.items()
        }
        text = console.get("/store").text
        assert "Certificates" in text
        assert all(target in text for target in secured.targets.values())


def test_without_the_authority_the_store_is_away(secured: Store, files: dict[str, Path]) -> None:
    """A console that does not trust the certificates says that it could not look, and shows nothing."""
    flags = ("--store-ca-file", str(files["short.pem"]), "--delivery-target", "", "--store-timeout-ms", "2000")
    with console_of(secured.targets, *flags) as console:
        answer = console.get(f"/find.json?q={KEY}")
        assert (answer.status, answer.json["outcome"]) == (503, "could_not_look")
        assert {row["health"] for row in console.json("/store.json")["services"]} == {"away"}


def test_the_consoles_own_certificate(secured: Store, files: dict[str, Path], tmp_path: Path) -> None:
    """The certificate that the console shows to services is in the list with its file; keys are not."""
    own = self_signed(tmp_path, "console", days=30)
    flags = ("--store-ca-file", str(files["all.pem"]), "--store-timeout-ms", "60000")
    shown = ("--store-certificate-file", str(own["console.pem"]), "--store-key-file", str(own["console.key"]))
    with console_of(secured.targets, *flags, *shown) as console:
        ends = {one["name"]: one["days_left"] for one in console.json("/store.json")["certificates"]}
        assert (ends[str(own["console.pem"])], len(ends)) == (29, 1 + len(CERTIFICATES))
        assert "console.key" not in console.get("/store").text
