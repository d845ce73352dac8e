# SPDX-License-Identifier: Apache-2.0
"""Draft: the subjects and rules of a rights file that is being made, and its text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from libs.runtime.trust.rights.rights_file import ACTIONS, NAME, RESERVED, RESOURCE_PATTERN

ALL = tuple(ACTIONS)


@dataclass(frozen=True, kw_only=True)
class DraftRule:
    """A rule of a draft. `topics` and `groups` are patterns."""

    verb: str
    actions: tuple[str, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    has_store: bool = False


@dataclass
class Draft:
    """A rights file that is being made. `notes` name everything that it does not carry over."""

    rules: dict[str, list[DraftRule]] = field(default_factory=dict)
    """By subject."""
    secrets: dict[str, str] = field(default_factory=dict)
    """Maps each access key to its secret."""
    notes: list[str] = field(default_factory=list)

    def add_subject(self, name: str, secret: str) -> bool:
        """Add a subject whose access key is its name. Returns False for a name that a rights file can't have."""
        if not NAME.fullmatch(name) or name in RESERVED:
            self.notes.append(f"{name!r} can't be the name of a subject, and is left out")
            return False
        self.rules.setdefault(name, [])
        if not secret or not secret.isascii() or len(secret.split()) != 1:
            self.notes.append(f"{name}: there is no secret, so access_keys_file needs it by hand")
        else:
            self.secrets[name] = secret
        return True

    def add_rule(
        self, subject: str, verb: str, actions: Iterable[str], kind: str, patterns: Sequence[str] = ("*",)
    ) -> None:
        """Add a rule for topics, groups or the store. Nothing is added without actions."""
        named = set(actions)
        chosen = tuple(action for action in ALL if action in named)
        if kind == "store":
            good: tuple[str, ...] = ()
        else:
            good = tuple(pattern for pattern in patterns if RESOURCE_PATTERN.fullmatch(pattern))
            self.notes += [
                f"{subject}: {pattern!r} is no name, and is left out" for pattern in patterns if pattern not in good
            ]
        if not chosen or (kind != "store" and not good):
            return
        rule = DraftRule(
            verb=verb,
            actions=chosen,
            topics=good if kind == "topics" else (),
            groups=good if kind == "groups" else (),
            has_store=kind == "store",
        )
        if rule not in self.rules[subject]:
            self.rules[subject].append(rule)

    def text(self, source: str) -> str:
        """Return the rights file."""
        lines = [f"# made by `reput access import` from {source}"]
        for name in self.rules:
            lines += ["", "[[subjects]]", f"name = {json.dumps(name)}", f"access_keys = {json.dumps([name])}"]
        for name, rules in self.rules.items():
            for rule in rules:
                lines += [
                    "",
                    "[[rules]]",
                    f"subjects = {json.dumps([name])}",
                    f"{rule.verb} = {json.dumps(rule.actions)}",
                ]
                lines += [f"topics = {json.dumps(rule.topics)}"] if rule.topics else []
                lines += [f"groups = {json.dumps(rule.groups)}"] if rule.groups else []
                lines += ["store = true"] if rule.has_store else []
        return "\n".join(lines) + "\n"

    def keys_text(self) -> str:
        """Return the gateway's file of access keys."""
        return "".join(f"{key} {secret}\n" for key, secret in self.secrets.items())
