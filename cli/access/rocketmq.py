# SPDX-License-Identifier: Apache-2.0
"""Reads RocketMQ's access control lists: plain_acl.yml of ACL 1.0, and users and lists of ACL 2.0 as JSON.

Sources: AclConfig of RocketMQ 4 and 5.2; UserInfo, AclInfo, Resource and PolicyEntry of RocketMQ 5.3 and later.
In ACL 2.0 the most exact entry decides: a literal name, then the longest prefix, then all names; custom policies before
the default policy; a denial among equals. In a rights file a denial always has priority. A denial
that takes nothing from a less exact entry is left out, as all is denied by default. Any other denial stays, and a note
gives the more exact names that RocketMQ allows and that become denied.
A right that has no equal is left out with a note, so that no subject gets more than it had.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.access.draft import ALL, Draft
from libs.runtime.errors import ConfigError
from libs.runtime.trust.rights.rules import RETRY_PREFIX

PERMISSIONS: Mapping[str, frozenset[str]] = {
    "DENY": frozenset(),
    "PUB": frozenset({"produce"}),
    "SUB": frozenset({"consume"}),
    "ANY": frozenset({"produce", "consume"}),
    "PUB|SUB": frozenset({"produce", "consume"}),
    "SUB|PUB": frozenset({"produce", "consume"}),
}
"""Permissions of ACL 1.0."""
CHANGES = frozenset({"CREATE", "UPDATE", "DELETE"})
"""Actions of ACL 2.0 that are `administer` together."""
KINDS = {"TOPIC": "topics", "GROUP": "groups", "CLUSTER": "store"}


def read_lists(draft: Draft, files: Sequence[tuple[Any, str]]) -> None:
    """Add the subjects and rules of files to a draft. A file is its content and its name.

    Users are read before lists, in whichever file they are. Raises ConfigError for a file of another form.
    """
    rows: list[tuple[dict[str, Any], str]] = []
    for content, source in files:
        if isinstance(content, dict) and "accounts" in content:
            _read_plain(draft, content, source)
        else:
            rows += [(row, source) for row in _rows(content, source)]
    for row, _ in rows:
        if "username" in row:
            _read_user(draft, row)
    for row, source in rows:
        if "policies" in row:
            _read_policies(draft, row, source)


def _rows(content: Any, source: str) -> list[dict[str, Any]]:
    """Return the users and lists of a file of ACL 2.0."""
    if isinstance(content, dict) and ("users" in content or "acls" in content):
        rows = [*_list(content.get("users"), f"{source}: users"), *_list(content.get("acls"), f"{source}: acls")]
    else:
        rows = _list(content, source)
    if not rows or not all(isinstance(row, dict) and ("username" in row or "policies" in row) for row in rows):
        raise ConfigError(
            f"{source}: must be plain_acl.yml, or JSON with users (username) and lists (subject, policies)"
        )
    return rows


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigError(f"{what} must be a list")
    return value


# ACL 1.0


def _read_plain(draft: Draft, content: dict[str, Any], source: str) -> None:
    if content.get("globalWhiteRemoteAddresses"):
        draft.notes.append("globalWhiteRemoteAddresses is left out: an address gives no rights")
    for index, account in enumerate(_list(content["accounts"], f"{source}: accounts")):
        if not isinstance(account, dict) or not account.get("accessKey"):
            raise ConfigError(f"{source}: accounts[{index}] must have an accessKey")
        name = str(account["accessKey"])
        if not draft.add_subject(name, str(account.get("secretKey") or "")):
            continue
        if account.get("whiteRemoteAddress"):
            draft.notes.append(f"{name}: whiteRemoteAddress is left out: an address gives no rights")
        if account.get("admin") is True or str(account.get("admin")).lower() == "true":
            _allow_all(draft, name)
            continue
        for kind, general, single in (
            ("topics", "defaultTopicPerm", "topicPerms"),
            ("groups", "defaultGroupPerm", "groupPerms"),
        ):
            where = f"{source}: accounts[{index}]"
            usual = _permission(account.get(general) or "DENY", f"{where}.{general}")
            draft.add_rule(name, "allow", usual, kind)
            for number, text in enumerate(_list(account.get(single), f"{where}.{single}")):
                resource, _, permission = str(text).partition("=")
                given = _permission(permission, f"{where}.{single}[{number}]")
                _add_single(draft, name, kind, resource.strip(), given, usual)


def _add_single(
    draft: Draft, name: str, kind: str, resource: str, given: frozenset[str], usual: frozenset[str]
) -> None:
    if kind == "topics" and resource.startswith(RETRY_PREFIX):
        kind, resource = "groups", resource.removeprefix(RETRY_PREFIX)
    draft.add_rule(name, "allow", given, kind, (resource,))
    draft.add_rule(name, "deny", usual - given, kind, (resource,))


def _permission(text: Any, where: str) -> frozenset[str]:
    found = PERMISSIONS.get(str(text).strip().upper())
    if found is None:
        raise ConfigError(f"{where} is {str(text)!r}: must be DENY, PUB, SUB or PUB|SUB")
    return found


# ACL 2.0


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """An entry of a policy: a decision about some actions with a pattern of names."""

    rank: tuple[int, int, int, int]
    """The higher, the more exact."""
    kind: str
    pattern: str
    is_denial: bool
    actions: frozenset[str]

    def covers(self, other: "_Entry") -> bool:
        """Return whether all names of the other entry are names of this entry."""
        if not self.pattern.endswith("*"):
            return self.pattern == other.pattern
        return other.pattern.startswith(self.pattern.removesuffix("*"))


def _read_user(draft: Draft, row: dict[str, Any]) -> None:
    name = str(row["username"])
    if str(row.get("userStatus") or "enable").lower() == "disable":
        draft.notes.append(f"{name} is disabled, and is left out")
    elif draft.add_subject(name, str(row.get("password") or "")) and str(row.get("userType")).lower() == "super":
        _allow_all(draft, name)


def _allow_all(draft: Draft, name: str) -> None:
    for kind in ("topics", "groups", "store"):
        draft.add_rule(name, "allow", ALL, kind)


def _read_policies(draft: Draft, row: dict[str, Any], source: str) -> None:
    name = str(row.get("subject") or row.get("subjectKey") or "").removeprefix("User:")
    if name not in draft.rules:
        draft.notes.append(f"the list of {name!r} is left out: it is of no user that is carried over")
        return
    entries: list[_Entry] = []
    for policy in _list(row.get("policies"), f"{source}: policies of {name}"):
        is_custom = str(policy.get("policyType") or "Custom").lower() == "custom"
        for entry in _list(policy.get("entries"), f"{source}: entries of {name}"):
            entries += _entries(draft, name, entry, source, is_custom=is_custom)
    entries.sort(key=lambda one: one.rank)
    for index, entry in enumerate(entries):
        less_exact, more_exact = entries[:index], entries[index + 1 :]
        if not entry.is_denial:
            draft.add_rule(name, "allow", entry.actions, entry.kind, (entry.pattern,))
            continue
        needed = {action for other in less_exact if _lets_in(other, entry) for action in entry.actions & other.actions}
        for other in more_exact:
            if _lets_in(other, entry) and (lost := needed & other.actions):
                text = f"{', '.join(sorted(lost))} with {other.kind} {other.pattern}"
                draft.notes.append(f"{name}: {text} is denied by {entry.pattern}, and RocketMQ allows it")
        draft.add_rule(name, "deny", needed, entry.kind, (entry.pattern,))


def _lets_in(other: _Entry, denial: _Entry) -> bool:
    """Return whether another entry allows some of the names of a denial."""
    return not other.is_denial and other.kind == denial.kind and (other.covers(denial) or denial.covers(other))


def _entries(draft: Draft, name: str, entry: dict[str, Any], source: str, *, is_custom: bool) -> Iterator[_Entry]:
    kind, pattern = _resource(entry.get("resource"), f"{source}: resource of {name}")
    environment = entry.get("environment") or {}
    addresses = entry.get("sourceIps") or (environment.get("sourceIps") if isinstance(environment, dict) else None)
    decision = str(entry.get("decision") or "").lower()
    if decision not in ("allow", "deny"):
        raise ConfigError(f"{source}: decision of {name} is {entry.get('decision')!r}: must be Allow or Deny")
    is_denial = decision == "deny"
    if addresses and not is_denial:
        draft.notes.append(f"{name}: {kind}:{pattern} is left out: it is allowed for some addresses only")
        return
    if addresses:
        draft.notes.append(f"{name}: {kind}:{pattern} is denied for all addresses, in RocketMQ only for some")
    given = {str(action).upper() for action in _list(entry.get("actions"), f"{source}: actions of {name}")}
    actions = _actions(draft, name, given, f"{kind}:{pattern}", is_denial=is_denial)
    kinds = ("topics", "groups", "store") if kind == "ANY" else (KINDS[kind],) if kind in KINDS else ()
    if not kinds:
        draft.notes.append(f"{name}: {kind}:{pattern} is left out: there is no such resource")
    for one in kinds:
        shown = "*" if one == "store" else pattern
        rank = (is_custom, 0 if shown == "*" else 1 if shown.endswith("*") else 2, len(shown), is_denial)
        yield _Entry(rank=rank, kind=one, pattern=shown, is_denial=is_denial, actions=actions)


def _actions(draft: Draft, name: str, given: set[str], what: str, *, is_denial: bool) -> frozenset[str]:
    if "ALL" in given:
        return frozenset(ALL)
    found = {action for word, action in (("PUB", "produce"), ("SUB", "consume")) if word in given}
    changes = given & CHANGES
    if changes == CHANGES or (changes and is_denial):
        found.add("administer")
    elif changes:
        draft.notes.append(f"{name}: {', '.join(sorted(changes))} of {what} is left out: administer is all changes")
    return frozenset(found)


def _resource(given: Any, where: str) -> tuple[str, str]:
    """Return the type of a resource and the pattern of its names, from RocketMQ's text or its parts."""
    if isinstance(given, dict):
        kind, name = str(given.get("resourceType") or "").upper(), str(given.get("resourceName") or "")
        shape = str(given.get("resourcePattern") or "LITERAL").upper()
        return kind, "*" if shape == "ANY" else f"{name}*" if shape == "PREFIXED" else name
    if not isinstance(given, str) or (given != "*" and ":" not in given):
        raise ConfigError(f"{where} is {given!r}: must be as Topic:NAME, Group:PREFIX* or *")
    if given == "*":
        return "ANY", "*"
    kind, _, name = given.partition(":")
    return kind.upper(), name
