# SPDX-License-Identifier: Apache-2.0
"""`reput access`: a rule is tried, a file is checked, RocketMQ's lists are imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.runtime.trust.rights.rights_file import read_rights
from libs.runtime.trust.rights.rules import STORE, Action, Kind, Resource
from tests.support.reput_up import Result, run_here

RIGHTS = """
[[subjects]]
name = "billing"
access_keys = ["b"]
[[subjects]]
name = "idle"
[[rules]]
subjects = ["billing"]
allow = ["consume"]
topics = ["orders-*"]
groups = ["billing"]
[[rules]]
subjects = ["*"]
deny = ["consume"]
topics = ["orders-secret"]
"""
REFUSED, USAGE, NOT_FOUND = 5, 2, 3


@pytest.fixture
def rights(tmp_path: Path) -> Path:
    (tmp_path / "rights.toml").write_text(RIGHTS)
    return tmp_path / "rights.toml"


@pytest.mark.parametrize(
    ("subject", "action", "resource", "code", "reason"),
    [
        ("billing", "consume", "orders-1", 0, "the rule in line 7 allows it"),
        ("billing", "consume", "topic:orders-1", 0, "the rule in line 7 allows it"),
        ("billing", "consume", "group:billing", 0, "the rule in line 7 allows it"),
        ("billing", "consume", "orders-secret", REFUSED, "the rule in line 12 denies it"),
        ("billing", "produce", "orders-1", REFUSED, "no rule allows it"),
        ("billing", "administer", "store", REFUSED, "no rule allows it"),
        ("anonymous", "consume", "orders-secret", REFUSED, "the rule in line 12 denies it"),
        ("operator", "administer", "store", 0, "it needs no rule"),
    ],
)
def test_a_rule_is_tried(rights: Path, subject: str, action: str, resource: str, code: int, reason: str) -> None:
    """The deciding rule is named, and the exit code says whether the subject may."""
    result = run_here("access", "test", subject, action, resource, "--rights", str(rights), "--json")
    assert result.code == code, result
    (row,) = result.rows
    assert (row["is_allowed"], row["reason"]) == (code == 0, reason)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("biling", "consume", "t"), NOT_FOUND, "SUBJECT_NOT_FOUND"),
        (("billing", "read", "t"), USAGE, "produce, consume, query, administer"),
        (("billing", "consume", "queue:t"), USAGE, "group:NAME or store"),
    ],
)
def test_a_wrong_question_is_told(rights: Path, arguments: tuple[str, ...], code: int, text: str) -> None:
    """A typing error is no denial."""
    result = run_here("access", "test", *arguments, "--rights", str(rights))
    assert result.code == code, result
    assert text in " ".join(result.errors.split())


def test_a_file_is_checked(rights: Path) -> None:
    """Subjects are listed with their credentials, and the error of a wrong file is the error of a service's start."""
    result = run_here("access", "check", str(rights), "--json")
    assert result.code == 0
    assert {row["subject"]: (row["access_keys"], row["rules"]) for row in result.rows} == {
        "billing": (1, 2),
        "idle": (0, 1),
    }
    assert "idle has no credential" in result.errors
    rights.write_text(RIGHTS.replace('"consume"', '"read"', 1))
    result = run_here("access", "check", str(rights))
    assert result.code == USAGE
    assert "line 9: rules[0].allow is 'read': must be produce" in result.errors


PLAIN = """
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
- accessKey: shop
  secretKey: "12345678"
  admin: false
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: DENY
  topicPerms:
  - orders=PUB
  - secret=DENY
  - "%RETRY%g2=SUB"
  groupPerms: [g=SUB]
- accessKey: root
  secretKey: abcdefgh
  whiteRemoteAddress: 192.168.0.*
  admin: true
"""
TOPIC, GROUP = Kind.TOPIC, Kind.GROUP


def imported(tmp_path: Path, *contents: str) -> tuple[Result, Any]:
    """Import files. Returns the result and the rights."""
    files = []
    for number, content in enumerate(contents):
        files.append(tmp_path / f"{number}.yml")
        files[-1].write_text(content)
    result = run_here(
        *("access", "import", *map(str, files)),
        *("--to", str(tmp_path / "rights"), "--access-keys", str(tmp_path / "keys")),
    )
    assert result.code == 0, result
    return result, read_rights(tmp_path / "rights").rights


def may(rights: Any, subject: str, action: Action, kind: Kind, name: str) -> bool:
    found: bool = rights.subject(subject).decide(action, Resource(kind, name)).is_allowed
    return found


def test_plain_acl_is_imported(tmp_path: Path) -> None:
    """The permission of a topic replaces the default, an administrator may do all, and addresses are left out."""
    result, rights = imported(tmp_path, PLAIN)
    shop = {
        (Action.PRODUCE, TOPIC, "other"): True,
        (Action.CONSUME, TOPIC, "other"): True,
        (Action.QUERY, TOPIC, "other"): False,
        (Action.ADMINISTER, TOPIC, "other"): False,
        (Action.PRODUCE, TOPIC, "orders"): True,
        (Action.CONSUME, TOPIC, "orders"): False,
        (Action.PRODUCE, TOPIC, "secret"): False,
        (Action.CONSUME, TOPIC, "secret"): False,
        (Action.CONSUME, GROUP, "g"): True,
        (Action.CONSUME, GROUP, "g2"): True,
        (Action.CONSUME, GROUP, "other"): False,
    }
    assert {question: may(rights, "shop", *question) for question in shop} == shop
    assert rights.subject("root").decide(Action.ADMINISTER, STORE).is_allowed
    assert may(rights, "root", Action.PRODUCE, TOPIC, "any")
    assert result.errors.count("left out") == 2
    assert (tmp_path / "keys").read_text() == "shop 12345678\nroot abcdefgh\n"
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    printed = run_here("access", "import", str(tmp_path / "0.yml"))
    assert printed.output == (tmp_path / "rights").read_text()
    assert run_here("access", "import", str(tmp_path / "0.yml"), "--json").rows[0]["subjects"] == 2


USERS = [
    {"username": "alice", "password": "secret1", "userType": "Normal", "userStatus": "enable"},
    {"username": "boss", "password": "secret2", "userType": "Super"},
    {"username": "gone", "password": "x", "userStatus": "disable"},
]


def acl(*entries: tuple[Any, list[str], str]) -> dict[str, Any]:
    """A list as `AclInfo` has it."""
    made = [{"resource": resource, "actions": actions, "decision": decision} for resource, actions, decision in entries]
    return {"subject": "User:alice", "policies": [{"policyType": "Custom", "entries": made}]}


def test_lists_of_acl_2_are_imported(tmp_path: Path) -> None:
    """Lists and users come in any order, in one file or several, with resources as texts or in parts."""
    parts = {"resourceType": "GROUP", "resourceName": "g", "resourcePattern": "PREFIXED"}
    entries = acl(
        ("Topic:orders-*", ["Pub", "Sub"], "Allow"),
        ("Topic:orders-secret", ["Sub"], "Deny"),
        (parts, ["SUB"], "ALLOW"),
        ("Topic:own", ["All"], "Allow"),
        ("Topic:made", ["Create"], "Allow"),
        ("Cluster:c", ["Get"], "Allow"),
    )
    result, rights = imported(tmp_path, json.dumps([entries]), json.dumps(USERS))
    alice = {
        (Action.PRODUCE, TOPIC, "orders-1"): True,
        (Action.CONSUME, TOPIC, "orders-secret"): False,
        (Action.PRODUCE, TOPIC, "orders-secret"): True,
        (Action.CONSUME, GROUP, "g1"): True,
        (Action.ADMINISTER, GROUP, "g1"): False,
        (Action.ADMINISTER, TOPIC, "own"): True,
        (Action.ADMINISTER, TOPIC, "made"): False,
        (Action.QUERY, TOPIC, "orders-1"): False,
    }
    assert {question: may(rights, "alice", *question) for question in alice} == alice
    assert rights.subject("boss").decide(Action.ADMINISTER, STORE).is_allowed
    assert not rights.subject("alice").decide(Action.ADMINISTER, STORE).is_allowed
    assert "gone is disabled" in result.errors
    assert "CREATE of TOPIC:made is left out" in result.errors


@pytest.mark.parametrize(
    ("entries", "name", "expected", "note"),
    [
        ((("*", ["All"], "Deny"), ("Topic:a", ["Pub"], "Allow")), "a", True, ""),
        ((("Topic:*", ["Pub"], "Allow"), ("Topic:a*", ["Pub"], "Deny")), "ab", False, ""),
        ((("Topic:*", ["Pub"], "Allow"), ("Topic:a*", ["Pub"], "Deny")), "b", True, ""),
        ((("Topic:a", ["Pub"], "Allow"), ("Topic:a", ["Pub"], "Deny")), "a", False, ""),
        (
            (("Topic:*", ["Pub"], "Allow"), ("Topic:a*", ["Pub"], "Deny"), ("Topic:ab", ["Pub"], "Allow")),
            "ab",
            False,
            "produce with topics ab is denied by a*, and RocketMQ allows it",
        ),
    ],
)
def test_the_most_exact_entry_decides_or_a_note_says_that_it_does_not(
    tmp_path: Path, entries: Any, name: str, expected: bool, note: str
) -> None:
    """Where a rights file can't say the same, the subject gets less and the note tells it."""
    result, rights = imported(tmp_path, json.dumps({"users": USERS[:1], "acls": [acl(*entries)]}))
    assert may(rights, "alice", Action.PRODUCE, TOPIC, name) is expected
    assert note in result.errors
    assert note or not result.errors.count("denied")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[", "neither YAML nor JSON"),
        ("7", "must be a list"),
        ("[]", "must be plain_acl.yml"),
        ("accounts: [{secretKey: x}]", "accounts[0] must have an accessKey"),
        ("accounts: [{accessKey: a, defaultTopicPerm: READ}]", "accounts[0].defaultTopicPerm is 'READ'"),
        ("accounts: [{accessKey: a, topicPerms: [t=X]}]", "topicPerms[0] is 'X'"),
        ("!!python/object/apply:os.system [id]", "neither YAML nor JSON"),
        (json.dumps([*USERS[:1], acl(("Topic:a", ["Pub"], "Maybe"))]), "decision of alice is 'Maybe'"),
        (json.dumps([*USERS[:1], acl((7, ["Pub"], "Allow"))]), "resource of alice is 7"),
    ],
)
def test_a_wrong_list_is_told(tmp_path: Path, content: str, text: str) -> None:
    """A file of another form gives an error with its place, and writes nothing."""
    (tmp_path / "f").write_text(content)
    result = run_here("access", "import", str(tmp_path / "f"), "--to", str(tmp_path / "rights"))
    assert result.code == USAGE, result
    assert text in result.errors
    assert not (tmp_path / "rights").exists()


def test_no_file_is_replaced(tmp_path: Path) -> None:
    """An import never overwrites rules that are in force."""
    (tmp_path / "f").write_text(PLAIN)
    (tmp_path / "rights").write_text("mine")
    result = run_here("access", "import", str(tmp_path / "f"), "--to", str(tmp_path / "rights"))
    assert result.code == 1, result
    assert "File exists" in result.errors
    assert (tmp_path / "rights").read_text() == "mine"


def test_the_page_shows_what_the_commands_print(tmp_path: Path) -> None:
    """The file of docs/rights.md is right, and its answers and refusals are the ones of the page."""
    page = (Path(__file__).resolve().parents[3] / "docs/rights.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "rights.toml").write_text(example.replace("/etc/reput/shop.token", "shop.token"))
    (tmp_path / "shop.token").write_text("token")
    (tmp_path / "shop.token").chmod(0o600)
    file = str(tmp_path / "rights.toml")
    assert run_here("access", "check", file).code == 0
    result = run_here("access", "test", "billing", "consume", "group:billing", "--rights", file)
    assert result.output.strip() in page
    denied = run_here("access", "test", "shop", "produce", "orders-archive", "--rights", file, "--json")
    assert f"shop may not produce topic orders-archive: {denied.rows[0]['reason']};" in page
