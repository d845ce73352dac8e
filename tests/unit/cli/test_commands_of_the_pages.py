# SPDX-License-Identifier: Apache-2.0
"""Every `reput` command and every `make` verb in README and docs exists, with each of its options."""

import functools
import importlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.registry import app
from libs.runtime.config import fields_of, flag_name

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("docs", "clients", "deploy", "tests", "bench", "protos")
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")))
    if not {"build", "node_modules", "results", "decisions"} & set(path.relative_to(ROOT).parts)
)
IN_LINE = re.compile(r"(?<!`)`(reput|make) ([^`\n]+)`(?!`)")
FENCED = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
VERBS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PLACE_HOLDER = re.compile(r"[A-Z…\[<{|]|\.\.\.")


def commands_of(text: str) -> Iterator[list[str]]:
    """Commands of a page, each as its words: in back quotes, and in shell blocks."""
    in_line = [f"{program} {rest}" for program, rest in IN_LINE.findall(FENCED.sub("", text))]
    in_blocks = (line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines())
    for line in (*in_line, *in_blocks):
        yield from simple_commands(line.removeprefix("$ "))


def simple_commands(line: str) -> Iterator[list[str]]:
    """The calls of `reput` and `make` in a line of a shell, without redirections and assignments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a text of several lines, or an apostrophe of a comment
        return
    for is_break, part in itertools.groupby(words, lambda word: set(word) <= set(";|&()")):
        command = list(part)
        if redirection := next((at for at, word in enumerate(command) if set(word) <= set("<>")), None):
            command = command[:redirection]
            command = command[:-1] if command[-1].isdigit() else command
        while command and re.match(r"[A-Z_]+=", command[0]):
            command = command[1:]
        if not is_break and command and command[0] in {"reput", "make"}:
            yield command


def complaint(words: list[str]) -> str:
    """Return the fault of a command, or "" if it has none.

    Walks the groups, and looks each option up.
    """
    command = root_command()
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    path = ["reput"]
    for word in words:
        if word.startswith("-"):
            name = word.partition("=")[0]
            if name not in options and name not in {"--help", "-h", "-", "--"} and not re.fullmatch(r"-\d.*", name):
                return f"`{' '.join(path)}` has no option {name}"
        elif hasattr(command, "commands"):
            if PLACE_HOLDER.match(word):
                return ""
            found = command_of(word) if path == ["reput"] else command.commands.get(word)
            if found is None:
                if not is_value(command, words, word):
                    return f"`{' '.join(path)}` has no command {word}"
                continue
            command, path = found, [*path, word]
            if path[:2] == ["reput", "serve"] and len(path) == 3:
                options |= {"--config", *(flag_name(field.name) for field in fields_of(settings_of(word)))}
            options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return ""


@functools.cache
def root_command() -> Any:
    """The command `reput`."""
    return typer.main.get_command(app)


@functools.cache
def command_of(name: str) -> Any:
    """A command or group of `reput`, None without any. It is made once: `reput` makes it for each look-up."""
    return root_command().commands.get(name)


def settings_of(section: str) -> Any:
    """The settings of a service, which are flags of `reput serve`."""
    return importlib.import_module(f"services.{section}.bootstrap").Settings


def is_value(command: Any, words: list[str], word: str) -> bool:
    """Return whether a word is the value of the option before it."""
    before = words[words.index(word) - 1] if words.index(word) else ""
    return any(before in parameter.opts and not getattr(parameter, "is_flag", False) for parameter in command.params)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_a_page_exist(page: Path) -> None:
    """Each command of a page can be typed as it is written there."""
    wrong = []
    for program, *words in commands_of(page.read_text(encoding="utf-8")):
        if program == "make":
            verbs = [word for word in words if "=" not in word and not word.startswith("-")]
            wrong += [
                f"make has no verb {verb}" for verb in verbs if verb not in VERBS and not PLACE_HOLDER.match(verb)
            ]
        elif said := complaint(words):
            wrong.append(f"reput {' '.join(words)}: {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("topic create x", "`reput` has no command topic"),
        ("topics create x --queue-count 3", "`reput topics create` has no option --queue-count"),
        ("topics creat x", "`reput topics` has no command creat"),
        ("--commitlog localhost:1 status", ""),
        ("pull orders --queue 0", ""),
    ],
)
def test_a_wrong_command_is_found(text: str, wrong: str) -> None:
    """The check finds a wrong command."""
    assert complaint(text.split()) == wrong
