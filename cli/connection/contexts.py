# SPDX-License-Identifier: Apache-2.0
"""Contexts: named stores, so that addresses need not be typed twice. At most a single context is in use.

They are in a file of the user, $XDG_CONFIG_HOME/reput/contexts.json, by default below ~/.config, which no other user
may read. It has addresses and paths, never the content of the files at the paths. A context takes the place of
environment variables, so that code which reads the variables does not know contexts.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from cli.exit_codes import CommandFailed, ExitCode

TARGET_VARIABLES = {
    service: f"REPUT_CLIENT_{service.upper()}_TARGET" for service in ("commitlog", "indexer", "janitor", "delivery")
}
BESIDE_VARIABLES = {service: f"REPUT_CLIENT_{service.upper()}_TARGET" for service in ("delivery", "gateway")}
"""Variables of services that not every store has."""
STORE_VARIABLE = "REPUT_CLIENT_STORE_TARGET"
"""The variable of the address of the whole store."""
ADDRESS_VARIABLES = {"store": STORE_VARIABLE, **TARGET_VARIABLES, **BESIDE_VARIABLES}
VARIABLES = {
    **ADDRESS_VARIABLES,
    "ca_file": "REPUT_CLIENT_CA_FILE",
    "certificate_file": "REPUT_CLIENT_CERTIFICATE_FILE",
    "key_file": "REPUT_CLIENT_KEY_FILE",
    "token_file": "REPUT_CLIENT_TOKEN_FILE",
}
"""Keys of a context, and the variables in whose place they are used."""
PREFIX = "REPUT_CLIENT_"


class Contexts:
    """All contexts by name. `used` is the context in use, "" for none."""

    def __init__(self, used: str, stores: dict[str, dict[str, str]]) -> None:
        self.used, self.stores = used, stores

    def store(self, name: str) -> dict[str, str]:
        """Return the keys and values of a context. Raises CommandFailed."""
        if name not in self.stores:
            known = f"there are {', '.join(sorted(self.stores))}" if self.stores else "`reput context add` makes one"
            raise CommandFailed("CONTEXT_NOT_FOUND", f"no context {name!r}; {known}", code=ExitCode.NOT_FOUND)
        return self.stores[name]


def contexts_path() -> Path:
    """Return the path of the file of contexts. Raises CommandFailed for a user without a home."""
    given = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        home = given if given.is_absolute() else Path.home() / ".config"
    except RuntimeError:
        text = "this user has no home for contexts: set XDG_CONFIG_HOME"
        raise CommandFailed("CONFIG", text, code=ExitCode.USAGE) from None
    return home / "reput/contexts.json"


def read_contexts() -> Contexts:
    """Return all contexts, none if this user has no file. Raises CommandFailed for a file with other content."""
    try:
        path = contexts_path()
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError, CommandFailed):
        return Contexts("", {})
    try:
        found = json.loads(text)
        stores = {
            str(name): {key: str(store[key]) for key in VARIABLES if key in store}
            for name, store in found["contexts"].items()
        }
        return Contexts(str(found["used"]), stores)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        text = f"{path} is not what `reput context` writes: put it right, or remove it"
        raise CommandFailed("CONFIG", text, code=ExitCode.USAGE) from None


def write_contexts(contexts: Contexts) -> None:
    """Store all contexts, as a whole or not at all. Raises OSError."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    text = json.dumps({"used": contexts.used, "contexts": contexts.stores}, indent=2, sort_keys=True)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def context_of(given: Mapping[str, object]) -> str:
    """Return the context that is used for a command, "" for none. `given` are the options that were typed.

    The context in use is ignored if variables name an address: parts of two stores are never mixed.
    """
    if typed := given.get("context"):
        return str(typed)
    if any(os.environ.get(variable) for variable in ADDRESS_VARIABLES.values()):
        return ""
    return read_contexts().used


def environment_of(given: Mapping[str, object]) -> Mapping[str, str]:
    """Return the variables that are used for a command. Raises CommandFailed.

    A context that was typed replaces all variables with our prefix; the variables take precedence over a context in
    use.
    """
    name = context_of(given)
    if not name:
        return os.environ
    variables = {VARIABLES[key]: value for key, value in read_contexts().store(name).items()}
    if given.get("context"):
        return {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)} | variables
    return {**variables, **os.environ}
