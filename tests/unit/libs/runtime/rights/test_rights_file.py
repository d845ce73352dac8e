# SPDX-License-Identifier: Apache-2.0
"""The rights file: what it may hold, and errors that name line, field and value."""

from pathlib import Path

import pytest

from libs.runtime.errors import ConfigError
from libs.runtime.trust.rights.rights_file import RightsError, digest_of, read_rights
from libs.runtime.trust.rights.rules import Action, Kind, Resource

GOOD = """\
# subjects first
[[subjects]]
name = "billing"
token_file = "billing.token"
certificates = ["billing.example.com"]

[[subjects]]
name = "shop"
token_sha256 = ["DIGEST"]
access_keys = ["shop-key"]

[[rules]]
subjects = ["billing", "anonymous"]
allow = [
  "consume",
  "query",
]
topics = ["orders-*"]
groups = ["billing"]

[[rules]]
subjects = ["*"]
deny = ["administer"]
store = true
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "billing.token").write_text("old\nnew\n")
    file = tmp_path / "rights.toml"
    file.write_text(GOOD.replace("DIGEST", digest_of(b"shop-token").hex().upper()))
    return file


def changed(path: Path, old: str, new: str) -> Path:
    """The file with a change."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def test_a_good_file(path: Path) -> None:
    """Each credential names its subject, and the rules decide."""
    file = read_rights(path)
    assert list(file.names) == ["billing", "shop"]
    assert file.tokens == {digest_of(b"old"): "billing", digest_of(b"new"): "billing", digest_of(b"shop-token"): "shop"}
    assert file.certificates == {"billing.example.com": "billing"}
    assert file.access_keys == {"shop-key": "shop"}
    assert list(file.token_files) == [path.parent / "billing.token"]
    billing = file.rights.subject("billing")
    assert billing.decide(Action.CONSUME, Resource(Kind.TOPIC, "orders-1")).is_allowed
    assert not billing.decide(Action.PRODUCE, Resource(Kind.TOPIC, "orders-1")).is_allowed
    assert file.rights.rules[1].place == "line 21"
    assert "old" not in repr(file)


def test_an_empty_file_permits_nothing(tmp_path: Path) -> None:
    """A file without rules is a file: everything is denied."""
    (tmp_path / "r").write_text("")
    assert not read_rights(tmp_path / "r").rights.rules


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "text"),
    [
        ('"query"', '"read"', 16, "rules[0].allow", "'read': must be produce, consume, query, administer"),
        ('name = "shop"', 'name = "billing"', 8, "subjects[1].name", "name of another subject"),
        ('name = "shop"', 'name = "operator"', 8, "subjects[1].name", "a name that the services give"),
        ('name = "shop"', 'name = "anonymous"', 9, "subjects[1].token_sha256", "only limits"),
        ('name = "shop"', 'name = ""', 8, "subjects[1].name", "1 to 127"),
        ('name = "shop"', "name = 7", 8, "subjects[1].name", "is 7"),
        ('name = "shop"\n', "", 7, "subjects[1].name", "1 to 127"),
        ('"billing", "anonymous"', '"biling"', 13, "rules[0].subjects", "'biling': is no name of a subject"),
        ('"billing", "anonymous"', "", 13, "rules[0].subjects", "at least a subject"),
        ('["orders-*"]', '["orders*x"]', 18, "rules[0].topics", "a prefix and *"),
        ('["orders-*"]', '"orders-*"', 18, "rules[0].topics", "a list of texts"),
        ('["orders-*"]', "[1]", 18, "rules[0].topics", "is 1"),
        ("store = true", 'store = "yes"', 24, "rules[1].store", "true or false"),
        ("store = true", "", 21, "rules[1].topics", "must name topics, groups, or store"),
        ('deny = ["administer"]', "", 21, "rules[1].allow", "either allow or deny"),
        ('deny = ["administer"]', 'deny = ["administer"]\nallow = ["query"]', 24, "rules[1].allow", "either allow"),
        ('deny = ["administer"]', "deny = []", 23, "rules[1].deny", "at least one of"),
        ("certificates", "certificate", 5, "subjects[0].certificate", "no such field"),
        ('"billing.token"', '"gone.token"', 4, "subjects[0].token_file", "No such file"),
        ('["shop-key"]', '["shop-key"]\ncalls_per_s_max = 0', 11, "subjects[1].calls_per_s_max", "is 0: must be an"),
        ('["shop-key"]', '["shop-key"]\nbytes_per_s_max = "1M"', 11, "subjects[1].bytes_per_s_max", "an integer"),
        ('["shop-key"]', '["shop-key"]\nstream_count_max = 1.5', 11, "subjects[1].stream_count_max", "is 1.5"),
        ('["shop-key"]', '["shop-key"]\nconnection_count_max = true', 11, "subjects[1].connection_count_max", "True"),
        ('["shop-key"]', '["a key"]', 10, "subjects[1].access_keys", "without spaces"),
        ('[[rules]]\nsubjects = ["*"]', '[[roles]]\nsubjects = ["*"]', 21, "roles", "no such table"),
    ],
)  # fmt: skip
def test_an_error_names_line_field_and_value(path: Path, old: str, new: str, line: int, field: str, text: str) -> None:
    """Each mistake is found, and its error leads to its place."""
    with pytest.raises(RightsError, match=r"rights_file: .*rights\.toml: line \d+: ") as caught:
        read_rights(changed(path, old, new))
    assert (caught.value.line, caught.value.field) == (line, field), caught.value
    assert text in str(caught.value)


def test_a_credential_is_of_one_subject(path: Path) -> None:
    """Else the file would not say who calls."""
    changed(path, digest_of(b"shop-token").hex().upper(), digest_of(b"old").hex())
    with pytest.raises(RightsError, match="has a token of subject billing, too"):
        read_rights(path)
    changed(path, digest_of(b"old").hex(), "7")
    with pytest.raises(RightsError, match="64 hexadecimal digits"):
        read_rights(path)


@pytest.mark.parametrize("content", [b"[[rules", b"\xff\xfe", b"rules = " + b"[" * 100_000, b"a = 1", b"rules = 7"])
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    """Bytes that are no TOML, or another TOML, are refused."""
    (tmp_path / "r").write_bytes(content)
    with pytest.raises(ConfigError, match=r"rights_file: .*/r: "):
        read_rights(tmp_path / "r")


def test_a_missing_and_a_huge_file(tmp_path: Path) -> None:
    """The error names the file, and the limit of its size."""
    with pytest.raises(ConfigError, match="No such file"):
        read_rights(tmp_path / "r")
    (tmp_path / "r").write_bytes(b"#" * (5 << 20))
    with pytest.raises(ConfigError, match="the limit is 4194304"):
        read_rights(tmp_path / "r")
