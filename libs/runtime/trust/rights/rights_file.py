# SPDX-License-Identifier: Apache-2.0
"""Reads a rights file: TOML with a table for each subject and each rule. docs/rights.md describes it.

An error names the line, the field, its value and the permitted values.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from libs.runtime.errors import ConfigError
from libs.runtime.trust.rights.quota import LIMIT_FIELDS, LIMIT_MAX, QuotaLimits
from libs.runtime.trust.rights.rules import ANONYMOUS, Action, Names, Rights, Rule
from libs.runtime.trust.tokens import read_tokens

SETTING = "rights_file"
SIZE_BYTES_MAX = 4 << 20
TABLE_COUNT_MAX, LIST_COUNT_MAX = 10_000, 1_000
"""Maximum number of subjects and of rules, and of entries of a list."""
VALUE_SHOWN = 60

OPERATOR, SERVICE = "operator", "service"
RESERVED = (ANONYMOUS, SERVICE, OPERATOR)
"""Names that callers have without a subject of the file."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@%|/:-]{0,126}")
SUBJECT_PATTERN = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._@%|/:-]{0,126})?\*|[A-Za-z0-9][A-Za-z0-9._@%|/:-]{0,126}")
RESOURCE_PATTERN = re.compile(r"[A-Za-z0-9_|%-]{0,254}\*|[A-Za-z0-9_|%-]{1,255}")
DIGEST = re.compile(r"[0-9A-Fa-f]{64}")
PRINTABLE = re.compile(r"[!-~]{1,1024}")
CERTIFICATE_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,1024}")

CREDENTIAL_FIELDS = ("token_file", "token_sha256", "certificates", "access_keys")
SUBJECT_FIELDS = ("name", *CREDENTIAL_FIELDS, *LIMIT_FIELDS)
RULE_FIELDS = ("subjects", "allow", "deny", "topics", "groups", "store")
ACTIONS = {str(action.name).lower(): action for action in Action}

Problem = Callable[[str, object, str], "RightsError"]
"""Makes the error of a field: its name, its value and the reason."""


class RightsError(ConfigError):
    """A rights file has a wrong value. `line` is its line, from 1; `field` and `value` name it."""

    def __init__(self, path: Path, line: int, name: str, value: object, reason: str) -> None:
        self.line, self.field, self.value = line, name, value
        shown = repr(value)
        shown = shown if len(shown) <= VALUE_SHOWN else shown[:VALUE_SHOWN] + "…"
        super().__init__(f"{SETTING}: {path}: line {line}: {name} is {shown}: {reason}")


@dataclass(frozen=True, kw_only=True)
class RightsFile:
    """A rights file that was read."""

    rights: Rights
    names: Sequence[str]
    """The names of its subjects."""
    tokens: dict[bytes, str] = field(repr=False)
    """Maps the SHA-256 of each token to its subject."""
    certificates: dict[str, str]
    """Maps each name of a client certificate to its subject."""
    access_keys: dict[str, str]
    """Maps each access key of the gateway to its subject."""
    quotas: dict[str, QuotaLimits]
    """Maps each subject that has a quota to its limits."""
    token_files: Sequence[Path]
    """Files of tokens that the rights file names."""


def digest_of(token: bytes) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(token).digest()


def read_rights(path: Path) -> RightsFile:
    """Read a rights file and the files of tokens that it names. Raises ConfigError, of which RightsError is a kind."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{SETTING}: {path}: {error.strerror}") from error
    if len(data) > SIZE_BYTES_MAX:
        raise ConfigError(f"{SETTING}: {path}: the file has {len(data)} bytes, the limit is {SIZE_BYTES_MAX}")
    import tomllib

    try:
        text = data.decode()
        content = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{SETTING}: {path}: not TOML: {error}") from error
    return _Reader(path, text).read(content)


class _Reader:
    """Reads the content of a file."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()
        self._tokens: dict[bytes, str] = {}
        self._certificates: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._quotas: dict[str, QuotaLimits] = {}
        self._files: list[Path] = []

    def read(self, content: dict[str, Any]) -> RightsFile:
        for key, value in content.items():
            if key not in ("subjects", "rules"):
                raise RightsError(self._path, self._line_of(key), key, value, "no such table: subjects and rules are")
        names: list[str] = []
        for table, problem in self._tables(content, "subjects", SUBJECT_FIELDS):
            names.append(self._subject(table, names, problem))
        known = frozenset((*names, ANONYMOUS))
        names = [name for name in names if name != ANONYMOUS]
        rules = [
            self._rule(table, known, f"line {self._line('rules', index, '')}", problem)
            for index, (table, problem) in enumerate(self._tables(content, "rules", RULE_FIELDS))
        ]
        return RightsFile(
            rights=Rights(rules),
            names=names,
            tokens=self._tokens,
            certificates=self._certificates,
            access_keys=self._keys,
            quotas=self._quotas,
            token_files=self._files,
        )

    def _tables(
        self, content: dict[str, Any], kind: str, fields: Sequence[str]
    ) -> Iterator[tuple[dict[str, Any], Problem]]:
        tables = content.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise RightsError(self._path, self._line_of(kind), kind, tables, f"must be tables [[{kind}]]")
        if len(tables) > TABLE_COUNT_MAX:
            raise RightsError(self._path, 1, kind, len(tables), f"must be at most {TABLE_COUNT_MAX}")
        for index, table in enumerate(tables):

            def problem(name: str, value: object, reason: str, index: int = index) -> RightsError:
                line = self._line(kind, index, name, value)
                return RightsError(self._path, line, f"{kind}[{index}].{name}", value, reason)

            for name, value in table.items():
                if name not in fields:
                    raise problem(name, value, f"no such field; fields are {', '.join(fields)}")
            yield table, problem

    def _subject(self, table: dict[str, Any], names: Sequence[str], problem: Problem) -> str:
        name = table.get("name", "")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise problem("name", name, "must be 1 to 127 letters, digits and . _ @ % | / : -, a letter or digit first")
        if name in (OPERATOR, SERVICE):
            raise problem("name", name, "is a name that the services give")
        if name == ANONYMOUS:
            for credential in CREDENTIAL_FIELDS:
                if credential in table:
                    raise problem(credential, table[credential], f"{ANONYMOUS} has no credential, only limits")
        if name in names:
            raise problem("name", name, "is the name of another subject, too")
        for token in self._token_digests(table, problem):
            if self._tokens.setdefault(token, name) != name:
                what = "token_file" if "token_file" in table else "token_sha256"
                raise problem(what, table[what], f"has a token of subject {self._tokens[token]}, too")
        for certificate in _texts(table, "certificates", CERTIFICATE_NAME, "a name of a certificate", problem):
            if self._certificates.setdefault(certificate, name) != name:
                raise problem("certificates", certificate, f"is of subject {self._certificates[certificate]}, too")
        for key in _texts(table, "access_keys", PRINTABLE, "an access key without spaces", problem):
            if self._keys.setdefault(key, name) != name:
                raise problem("access_keys", key, f"is of subject {self._keys[key]}, too")
        limits = QuotaLimits(**{field: _limit(table, field, problem) for field in LIMIT_FIELDS})
        if limits.is_set:
            self._quotas[name] = limits
        return name

    def _token_digests(self, table: dict[str, Any], problem: Problem) -> list[bytes]:
        found = [
            bytes.fromhex(text)
            for text in _texts(table, "token_sha256", DIGEST, "64 hexadecimal digits, the SHA-256 of a token", problem)
        ]
        given = table.get("token_file")
        if given is None:
            return found
        if not isinstance(given, str) or not given or "\0" in given:
            raise problem("token_file", given, "must be the path of a file")
        path = self._path.parent / given
        self._files.append(path)
        try:
            return [*found, *map(digest_of, read_tokens("token_file", path))]
        except ConfigError as error:
            raise problem("token_file", given, str(error).removeprefix("token_file: ")) from error

    def _rule(self, table: dict[str, Any], known: frozenset[str], place: str, problem: Problem) -> Rule:
        subjects = _texts(table, "subjects", SUBJECT_PATTERN, "a name of a subject, or a prefix and *", problem)
        for name in subjects:
            if not name.endswith("*") and name not in known:
                raise problem("subjects", name, "is no name of a subject")
        if not subjects:
            raise problem("subjects", table.get("subjects"), "must name at least a subject")
        verbs = [verb for verb in ("allow", "deny") if verb in table]
        if len(verbs) != 1:
            raise problem("allow", table.get("allow"), "a rule must have either allow or deny")
        (verb,) = verbs
        actions = Action(0)
        for text in _texts(table, verb, PRINTABLE, "an action", problem):
            if text not in ACTIONS:
                raise problem(verb, text, f"must be {', '.join(ACTIONS)}")
            actions |= ACTIONS[text]
        if not actions:
            raise problem(verb, table[verb], f"must be at least one of {', '.join(ACTIONS)}")
        topics, groups = (
            _texts(table, name, RESOURCE_PATTERN, f"a name of a {name[:-1]}, or a prefix and *", problem)
            for name in ("topics", "groups")
        )
        has_store = table.get("store", False)
        if not isinstance(has_store, bool):
            raise problem("store", has_store, "must be true or false")
        if not topics and not groups and not has_store:
            raise problem("topics", table.get("topics"), "a rule must name topics, groups, or store = true")
        return Rule(
            place=place,
            subjects=Names.of(subjects),
            is_denial=verb == "deny",
            actions=actions,
            topics=Names.of(topics),
            groups=Names.of(groups),
            has_store=has_store,
        )

    def _line(self, kind: str, index: int, name: str, value: object = None) -> int:
        """Return the line of a field of the table with this index, or of a text in its list, or else of the table."""
        heads = [number for number, line in enumerate(self._lines) if re.match(rf"\s*\[\[\s*{kind}\s*\]\]", line)]
        if index >= len(heads):
            return self._line_of(kind)
        end = next(
            (number for number in range(heads[index] + 1, len(self._lines)) if self._lines[number].startswith("[[")),
            len(self._lines),
        )
        for number in range(heads[index] + 1, end) if name else ():
            if re.match(rf"\s*\"?{re.escape(name)}\"?\s*=", self._lines[number]):
                quoted = (f'"{value}"', f"'{value}'")
                same = (at for at in range(number, end) if any(one in self._lines[at] for one in quoted))
                return next(same, number) + 1
        return heads[index] + 1

    def _line_of(self, key: str) -> int:
        """Return the line of a key outside of the tables."""
        found = (
            number for number, line in enumerate(self._lines, 1) if re.match(rf"\s*\[*\s*{re.escape(key)}\b", line)
        )
        return next(found, 1)


def _limit(table: dict[str, Any], name: str, problem: Problem) -> int | None:
    """Return a limit of a quota. None without a limit. Raises the problem of a wrong value."""
    value = table.get(name)
    if value is not None and (type(value) is not int or not 1 <= value <= LIMIT_MAX):
        raise problem(name, value, f"must be an integer from 1 to {LIMIT_MAX}")
    return value


def _texts(table: dict[str, Any], name: str, pattern: re.Pattern[str], meaning: str, problem: Problem) -> list[str]:
    """Return a list of texts. Raises the problem of the first text that is wrong."""
    given = table.get(name, [])
    if not isinstance(given, list):
        raise problem(name, given, "must be a list of texts")
    if len(given) > LIST_COUNT_MAX:
        raise problem(name, len(given), f"must have at most {LIST_COUNT_MAX} texts")
    for text in given:
        if not isinstance(text, str) or not pattern.fullmatch(text):
            raise problem(name, text, f"must be {meaning}")
    return given
