# SPDX-License-Identifier: Apache-2.0
"""The console among the roles: a client's token is enough but for a question, and without a right pages say so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client

from tests.console.filling import KEY, fill
from tests.support.console import console_of
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e

SERVICES = ("commitlog", "indexer", "janitor", "delivery")
PAGES = (
    f"/find.json?q={KEY}", "/topics.json", "/topics/orders.json", "/groups.json", "/groups/billing.json",
    "/groups/readers.json", "/dead-letters.json", "/dead-letters/billing.json", "/delayed.json", "/transactions.json",
    "/retention.json", "/store.json",
)  # fmt: skip
OF_OPERATORS = ("/audit", "/connections")
ROLES = ("client", "service", "operator")


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    files = {role: tmp_path_factory.mktemp("tokens") / role for role in (*ROLES, "stranger")}
    for role, file in files.items():
        file.write_text(f"{role}-token\n")
        file.chmod(0o600)
    return files


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, Path]) -> Iterator[Store]:
    """A store that asks each caller for a token."""
    directory = tmp_path_factory.mktemp("guarded")
    lines = [f'{"" if role == "client" else role + "_"}token_file = "{tokens[role]}"' for role in ROLES]
    config = directory / "reput.toml"
    config.write_text("".join("\n".join([f"[{name}]", *lines, ""]) for name in SERVICES))
    with store(directory / "data", "--config", str(config), "--delivery", "--delivery-port", "0") as running:
        with reput_client.connect(**running.targets, token="client-token") as client:
            fill(client, count=20)
        yield running


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_each_role_shows_all_pages(guarded: Store, tokens: dict[str, Path], role: str) -> None:
    """A client's token is enough but for the reasons to keep segments, a trial run that only operators may ask for."""
    flags = ("--store-token-file", str(tokens[role]), "--store-timeout-ms", "60000")
    with console_of(guarded.targets, *flags) as console:
        for path in PAGES:
            answer = console.get(path)
            gaps = [gap["subject"] for gap in answer.json["gaps"]]
            lacks_right = path == "/retention.json" and role != "operator"
            assert (answer.status, gaps) == (200, ["the reasons to keep segments"] if lacks_right else []), path


@pytest.mark.parametrize("role", ROLES)
def test_pages_of_operators(guarded: Store, tokens: dict[str, Path], role: str) -> None:
    """Audit lines and connections are shown with the token of an operator; others read that a right is missing."""
    flags = ("--store-token-file", str(tokens[role]), "--store-timeout-ms", "60000")
    with console_of(guarded.targets, *flags) as console:
        for path in OF_OPERATORS:
            assert ("lacks the right" in console.get(path).text) is (role != "operator"), path


@pytest.mark.parametrize("role", [None, "stranger"])
def test_without_a_right_pages_say_so(guarded: Store, tokens: dict[str, Path], role: str | None) -> None:
    """Without a token, or with a wrong token, nothing of the store is shown, and nothing is said to be missing."""
    flags = ("--store-token-file", str(tokens[role])) if role else ()
    with console_of(guarded.targets, *flags) as console:
        for path in PAGES:
            answer = console.get(path)
            assert answer.status in (200, 503), path
            assert answer.json["gaps"], path
            assert "customer" not in answer.text, path
            assert "token" in str(answer.json["gaps"]), path
