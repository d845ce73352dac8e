# SPDX-License-Identifier: Apache-2.0
"""Contexts: the content of the file of `reput context`, its permissions, and the store that a command asks."""

import json
import os
import stat
from pathlib import Path

import pytest

from cli.connection.addresses import beside_of, place_of, targets_of
from cli.connection.contexts import ADDRESS_VARIABLES, contexts_path, environment_of
from cli.exit_codes import CommandFailed
from tests.support.reput_up import run_here

SHOP = ("--commitlog", "log:1,other:1", "--indexer", "index:2", "--janitor", "janitor:3", "--delivery", "delivery:4")
DEFAULTS = {
    "commitlog": ["127.0.0.1:7101"],
    "indexer": ["127.0.0.1:7102"],
    "janitor": ["127.0.0.1:7103"],
    "delivery": ["127.0.0.1:7104"],
}
SHOP_TARGETS = {
    "commitlog": ["log:1", "other:1"],
    "indexer": ["index:2"],
    "janitor": ["janitor:3"],
    "delivery": ["delivery:4"],
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts and without variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ADDRESS_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def add(name: str, *options: str) -> None:
    """Add a context."""
    result = run_here("context", "add", name, *options)
    assert result.code == 0, result


def test_what_a_user_does(home: Path) -> None:
    """Add, list, use, remove: each as text and as JSON."""
    assert run_here("context", "list", "--json").rows == []
    add("shop", *SHOP)
    add("lab")
    assert run_here("context", "use", "shop", "--json").rows == [{"used": "shop"}]
    rows = run_here("context", "list", "--json").rows
    assert [(row["name"], row["is_used"]) for row in rows] == [("lab", False), ("shop", True)]
    assert rows[1]["commitlog"] == "log:1,other:1"
    text = run_here("context", "list").output.splitlines()
    assert text[1].split()[:2] == ["lab", "no"]
    assert text[2].split()[:4] == ["shop", "yes", "log:1,other:1", "index:2"]
    assert targets_of({}) == SHOP_TARGETS
    assert run_here("context", "remove", "shop", "--json").rows == [{"removed": "shop"}]
    assert [row["name"] for row in run_here("context", "list", "--json").rows] == ["lab"]
    assert targets_of({}) == DEFAULTS


def test_which_store_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options take precedence, then a context that is typed, then variables, then the context in use.

    Two stores are never mixed.
    """
    add("shop", *SHOP)
    add("lab", "--indexer", "lab:5")
    run_here("context", "use", "shop")
    assert targets_of({"indexer": "x:9"}) == {**SHOP_TARGETS, "indexer": ["x:9"]}
    assert targets_of({"context": "lab"}) == {**DEFAULTS, "indexer": ["lab:5"]}
    assert targets_of({"context": "lab", "indexer": "x:9"})["indexer"] == ["x:9"]
    monkeypatch.setenv("REPUT_CLIENT_COMMITLOG_TARGET", "env:7")
    assert targets_of({}) == {**DEFAULTS, "commitlog": ["env:7"]}
    assert targets_of({"context": "shop"}) == SHOP_TARGETS
    monkeypatch.delenv("REPUT_CLIENT_COMMITLOG_TARGET")
    assert place_of({}, "indexer") == "index:2 (context shop)"
    assert place_of({"context": "lab"}, "indexer") == "lab:5 (context lab)"
    run_here("context", "use")
    assert targets_of({}) == DEFAULTS
    assert place_of({}, "indexer") == "127.0.0.1:7102"


def test_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the store is that of each service without one, and that of the gateway.

    A store that was typed never mixes with the parts of another store.
    """
    add("door", "--store", "door:1", "--janitor", "janitor:3")
    doors = {service: ["door:1"] for service in DEFAULTS}
    assert targets_of({"context": "door"}) == {**doors, "janitor": ["janitor:3"]}
    assert beside_of({"context": "door"}) == {"delivery": (["door:1"], False), "gateway": (["door:1"], True)}
    monkeypatch.setenv("REPUT_CLIENT_JANITOR_TARGET", "env:3")
    monkeypatch.setenv("REPUT_CLIENT_GATEWAY_TARGET", "env:8")
    assert targets_of({"store": "door:1"}) == doors
    assert beside_of({"store": "door:1"})["gateway"] == (["door:1"], True)
    monkeypatch.setenv("REPUT_CLIENT_STORE_TARGET", "env:9")
    assert targets_of({}) == {**{service: ["env:9"] for service in DEFAULTS}, "janitor": ["env:3"]}
    assert beside_of({})["gateway"] == (["env:8"], True)
    refused = run_here("--store", "door", "topics", "list")
    assert (refused.code, "--store or REPUT_CLIENT_STORE_TARGET" in refused.errors) == (2, True)
    assert "'door' has no port: give host:port, as in door:8081" in refused.errors


def test_no_secret_is_kept(home: Path) -> None:
    """A context keeps only absolute paths, in a file that no other user can read.

    A variable's token takes precedence over the context in use.
    """
    for name in ("ca", "pem", "key", "token"):
        (home / name).write_text(f"hidden words of {name}")
    before = Path.cwd()
    os.chdir(home)
    try:
        add("safe", "--ca-file", "ca", "--certificate-file", "pem", "--key-file", "key", "--token-file", "token")
    finally:
        os.chdir(before)
    add("public", "--ca-file", "system")
    run_here("context", "use", "safe")
    path = contexts_path()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert [found.name for found in path.parent.iterdir()] == ["contexts.json"]
    assert "hidden words" not in path.read_text()
    kept = json.loads(path.read_text())["contexts"]
    assert kept["safe"]["token_file"] == str(home / "token")
    assert kept["public"] == {"ca_file": "system"}
    found = environment_of({})
    for variable, name in {"REPUT_CLIENT_TOKEN_FILE": "token", "REPUT_CLIENT_KEY_FILE": "key"}.items():
        assert found[variable] == str(home / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPUT_CLIENT_TOKEN_FILE", "/elsewhere")
        assert environment_of({})["REPUT_CLIENT_TOKEN_FILE"] == "/elsewhere"
        assert environment_of({"context": "public"}).get("REPUT_CLIENT_TOKEN_FILE") is None


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("context", "use", "nope"), 3, "CONTEXT_NOT_FOUND: no context 'nope'; there are shop"),
        (("context", "remove", "nope"), 3, "CONTEXT_NOT_FOUND"),
        (("--context", "nope", "topics", "list"), 3, "CONTEXT_NOT_FOUND"),
        (("context", "add", "shop"), 5, "CONTEXT_EXISTS: there is a context shop already"),
        (("context", "add", "a b"), 2, "'a b': a name has 1 to 63 letters"),
        (("context", "add", "x", "--indexer", "http://h:1"), 2, "is a URL"),
        (("context", "add", "x", "--token-file", "/nowhere/token"), 2, "'/nowhere/token' is no file"),
        (("context", "add", "x", "--key-file", __file__), 2, "need each other"),
        (("context", "add", "x", "--key-file", __file__, "--certificate-file", __file__), 2, "needs --ca-file"),
    ],
)
def test_refusals(arguments: tuple[str, ...], code: int, text: str) -> None:
    """Each refusal tells the mistake, and nothing is changed."""
    add("shop", *SHOP)
    before = contexts_path().read_bytes()
    result = run_here(*arguments)
    assert (result.code, text in " ".join(result.errors.split())) == (code, True), result
    assert contexts_path().read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"used": 1, "contexts": []}', '{"contexts": {}}'])
def test_a_file_that_is_something_else(text: str) -> None:
    """A foreign file is named, and left as it is; help and commands that ask no store work without it."""
    contexts_path().parent.mkdir(parents=True)
    contexts_path().write_text(text)
    with pytest.raises(CommandFailed, match="is not what `reput context` writes"):
        targets_of({})
    assert run_here("version").code == 0
    assert run_here("context", "add", "x").code == 2
    assert contexts_path().read_text() == text


def test_what_not_every_store_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivery and the gateway have the addresses of a context or variable.

    Beside a store at another address no local Delivery and gateway are assumed.
    """
    add("shop", *SHOP, "--delivery", "d1:4,d2:4", "--gateway", "gate:5")
    assert beside_of({"context": "shop"}) == {"delivery": (["d1:4", "d2:4"], True), "gateway": (["gate:5"], True)}
    assert beside_of({"commitlog": "log:1"}) == {"delivery": ([], False), "gateway": ([], False)}
    monkeypatch.setenv("REPUT_CLIENT_GATEWAY_TARGET", "gate:8081")
    assert beside_of({})["gateway"] == (["gate:8081"], True)
