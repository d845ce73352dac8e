# SPDX-License-Identifier: Apache-2.0
"""Access: the subjects of a server's callers, and their rights by the rights file, which is read again when it changes.

A changed file that is wrong changes nothing: the rights and quotas that were read before stay in force. Without a
rights file every call is permitted here, and subjects are named by their roles alone.
Callers: a single event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from google.protobuf.message import Message
from msgspec import Struct

from libs.runtime.errors import ConfigError
from libs.runtime.http2.framing import CallRefused
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.callers import Callers, bearer_token
from libs.runtime.trust.exposure import open_mode
from libs.runtime.trust.rights.accesses import MethodAccess, Shown
from libs.runtime.trust.rights.quota import Quota, QuotaExceeded, QuotaLimits
from libs.runtime.trust.rights.rights_file import OPERATOR, SERVICE, RightsFile, digest_of, read_rights
from libs.runtime.trust.rights.rules import ANONYMOUS, Asked, Subject
from libs.runtime.trust.roles import Role
from libs.runtime.trust.tokens import CHECK_INTERVAL_S, WatchedFiles

CLIENT = "client"
"""The name of a caller without a token of an operator or a service, where no rights file is set."""

KNOWN_COUNT_MAX = 10_000
"""Maximum number of tokens whose subjects are known. Callers choose the tokens."""

HOLD_S, HOLD_STEP_COUNT = 0.25, 64
"""Time for which a refused call is held, and as long again for each step of held calls of its subject, in proportion.

So at most 256 refusals of a subject leave in a second, one after the other, however many calls it makes at once.
"""
HELD_COUNT_MAX, HELD_COUNT_SUM_MAX = 4_096, 16_384
"""Maximum number of held calls of a subject, and of all subjects. Each takes some 5 KiB."""
ROOM_WAIT_S = 1.0
"""Longest wait of a request of a stream for room in a quota."""
ROOM_LOOK_S_MIN, ROOM_LOOK_S_MAX = 0.01, 0.25
"""Times between two looks for room: the quota may change meanwhile."""

CERTIFICATE_NAMES = ("x509_subject_alternative_name", "x509_common_name")
"""The properties of a connection, in gRPC's notation, that have the names of the caller's certificate."""

_log = logging.getLogger(__name__)


class Context(Protocol):
    """The part of a call that shows its caller."""

    def invocation_metadata(self) -> Any:
        """Return the metadata of the call."""
        ...

    def auth_context(self) -> Any:
        """Return the properties of the connection."""
        ...


class AccessDenied(Exception):
    """A subject lacks a right."""

    def __init__(self, subject: str, asked: Asked, reason: str) -> None:
        self.subject, self.action, self.resource = subject, asked.actions.text, str(asked.resource)
        self.asked = asked
        self.field: str | None = None
        super().__init__(f"{subject} may not {self.action} {self.resource}: {reason}; docs/rights.md describes rights")


class NoToken(Exception):
    """The server asks clients for a token, and the call shows no valid one."""

    def __init__(self) -> None:
        super().__init__("a valid bearer token is needed in the metadata key authorization")


class NoDoor(Exception):
    """A caller passes the identity of another one on, and is no gateway."""

    def __init__(self) -> None:
        super().__init__(
            "the metadata reput-door must have the token of a gateway (door_token_file, else service_token_file): "
            "other callers pass no identity on"
        )


class RefusedRequest(bytes):
    """A request of a stream that is refused: the service answers it with `error`, and the stream goes on."""

    error: Exception


class RightsStatistics(Struct, frozen=True, kw_only=True):
    """The counts of the rights, for telemetry."""

    subject_count: int
    """Subjects of the rights file; 0 without a rights file."""
    rule_count: int
    """Rules of the rights file; 0 without a rights file."""
    refused_requests_total: int
    """Requests that were refused because a subject lacks a right; each batch of a stream counts."""
    over_quota_requests_total: int
    """Requests that were refused because a subject is over a quota; each batch of a stream counts."""
    failed_reloads_total: int
    """Times that the changed rights file was wrong."""
    is_outdated: int
    """1 while the rights file is wrong and the rights that were read before are in force."""


class Access:
    """The access of a server's callers. Raises ConfigError for a rights file that is wrong."""

    def __init__(self, config: ServerConfig, callers: Callers, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._path, self._callers, self._now_s = config.rights_file, callers, now_s
        self._quotas: dict[str, Quota] = {}
        """The quotas of subjects. They keep their counts when the file is read again."""
        self._has_certificates = config.tls_client_ca_file is not None
        self._needs_token = config.token_file is not None
        self._refused_count = self._over_count = self._failed_count = self._held_count = 0
        self._is_outdated = False
        self._generation = 0
        self._known: dict[bytes, Subject | None] = {}
        """Maps tokens to their subjects. None: the token is of no subject, but valid."""
        self._due_s = 0.0
        self._file: RightsFile | None = None
        if self._path is not None:
            self._watched = WatchedFiles([self._path])
            self._take(read_rights(self._path))

    @property
    def is_set(self) -> bool:
        """Whether there is a rights file."""
        return self._file is not None

    def statistics(self) -> RightsStatistics:
        """Return the counts."""
        file = self._file
        return RightsStatistics(
            subject_count=len(file.names) if file is not None else 0,
            rule_count=len(file.rights.rules) if file is not None else 0,
            refused_requests_total=self._refused_count,
            over_quota_requests_total=self._over_count,
            failed_reloads_total=self._failed_count,
            is_outdated=int(self._is_outdated),
        )

    @property
    def generation(self) -> int:
        """The number of times that the rights were read. A long call is checked again when it changes."""
        self._renew()
        return self._generation

    # Callers

    def may_begin(self, token: bytes, *, has_certificate: bool = False) -> bool:
        """Return whether a call with this token, or without any, may begin. Its rights are checked later.

        `has_certificate`: a door has told the names of its caller's certificate.
        """
        if not token:
            return not self._needs_token or self._has_certificates or has_certificate
        return self._subject_of_token(token) is not None or bool(self._callers.roles_of(token))

    def subject_of(self, context: Context) -> Subject:
        """Return the subject of a call. Raises NoToken."""
        token = bearer_token(context.invocation_metadata())
        subject = self._subject_of_token(token)
        if subject is None and self._file is not None and self._file.certificates:
            subject = self._subject_of_certificate(context)
        if subject is not None:
            return subject
        if self._needs_token and not token:
            raise NoToken
        return self._anonymous

    def name_of(self, context: Context) -> str:
        """Return the name of a call's subject, for logs: also without a rights file, and of a call that is refused."""
        try:
            if self.is_set:
                return self.subject_of(context).name
            subject = self._subject_of_token(bearer_token(context.invocation_metadata()))
        except (NoToken, CallRefused):  # metadata that are not in order name nobody
            return ANONYMOUS
        return CLIENT if subject is None else subject.name

    def subject_of_access_key(self, key: str) -> Subject:
        """Return the subject of an access key of the gateway."""
        self._renew()
        assert self._file is not None
        name = self._file.access_keys.get(key)
        return self._anonymous if name is None else self._subjects[name]

    # Quotas

    def quota_of(self, name: str) -> Quota | None:
        """Return the quota of a subject. None for a subject without one."""
        quota = self._quotas.get(name)
        return quota if quota is not None and quota.limits.is_set else None

    def count(self, quota: Quota, context: Any, size_bytes: int, *, is_stream: bool = False) -> None:
        """Count a request, its connection and its stream. Raises QuotaExceeded."""
        try:
            quota.check_room(size_bytes)
            connection = getattr(context, "connection", None)  # gRPC's own server does not show it
            if connection is not None:
                quota.connect(connection)
            if is_stream:
                quota.open_stream(context)
        except QuotaExceeded:
            self._over_count += 1
            raise
        quota.take(size_bytes)

    async def count_waiting(self, quota: Quota, context: Any, size_bytes: int) -> None:
        """Count a request of a stream, after a wait of at most `ROOM_WAIT_S` for room. Raises QuotaExceeded.

        The stream is not read meanwhile, so its caller is slowed down to the rate. While all callers together leave too
        many bytes here, nothing waits.
        """
        end_s, connection = self._now_s() + ROOM_WAIT_S, getattr(context, "connection", None)
        while not quota.has_room():
            left_s = end_s - self._now_s()
            if left_s <= 0 or (connection is not None and connection.is_pressed):
                break
            await asyncio.sleep(min(left_s, max(quota.wait_s(), ROOM_LOOK_S_MIN), ROOM_LOOK_S_MAX))
        self.count(quota, None, size_bytes)

    async def hold(self, subject: str, context: Any) -> None:
        """Wait before a refusal for a quota is answered, so that a subject that asks again at once asks less often.

        At most `HELD_COUNT_MAX` refusals of a subject wait; further ones are answered at once. The caller has
        dropped the request, whose bytes take no room of others meanwhile.
        """
        quota = self._quotas.get(subject)
        if quota is None or quota.held_count >= HELD_COUNT_MAX or self._held_count >= HELD_COUNT_SUM_MAX:
            return
        if (release := getattr(context, "release_request", None)) is not None:  # gRPC's own server counts no requests
            release()
        quota.held_count += 1
        self._held_count += 1
        try:
            await asyncio.sleep(HOLD_S * (1 + quota.held_count / HOLD_STEP_COUNT))
        finally:
            quota.held_count -= 1
            self._held_count -= 1

    # Rights

    def check(self, access: MethodAccess, request: Any, subject: Subject) -> None:
        """Return if a subject may make this request. Raises AccessDenied."""
        if subject.is_trusted:
            return
        try:
            self.require(subject, access.asked(request))
        except AccessDenied as error:
            if access.field_of is not None:
                error.field = access.field_of(request, error.asked.resource)
            raise

    def permitted(self, access: MethodAccess, request: bytes, context: Any) -> Subject | None:
        """Return the caller if it may make this request, and count the request. A refusal is not counted here."""
        try:
            subject = self.subject_of(context)
        except NoToken:
            return None
        if subject.is_trusted:
            return subject
        quota = subject.quota
        if quota is not None and not (quota.has_room() and quota.may_connect(context.connection)):
            return None  # the method is called for it, which refuses it without a look at the request
        if not all(subject.decide(*asked).is_allowed for asked in access.asked(request)):
            return None
        if quota is not None:
            quota.connect(context.connection)
            quota.take(len(request))
        return subject

    def require(self, subject: Subject, questions: Iterable[Asked]) -> None:
        """Return if the answer to each question is yes. Raises AccessDenied."""
        for asked in questions:
            verdict = subject.decide(*asked)
            if not verdict.is_allowed:
                self._refused_count += 1
                raise AccessDenied(subject.name, asked, verdict.reason)

    def show(self, shown: Shown, answer: Message, context: Context) -> Message:
        """Return the answer, without the elements that the caller may not see. Raises AccessDenied and NoToken."""
        subject = self.subject_of(context)
        if subject.is_trusted:
            return answer
        if not shown.list:
            self.require(subject, (Asked(shown.actions, resource) for resource in shown.resources(answer)))
            return answer
        elements = getattr(answer, shown.list)
        kept = [
            element
            for element in elements
            if all(subject.decide(shown.actions, resource).is_allowed for resource in shown.resources(element))
        ]
        if len(kept) < len(elements):
            answer.ClearField(shown.list)
            getattr(answer, shown.list).extend(kept)
        return answer

    # Files

    def _subject_of_token(self, token: bytes) -> Subject | None:
        self._renew()
        try:
            return self._known[token]
        except KeyError:
            subject = self._found(token)
        if len(self._known) >= KNOWN_COUNT_MAX:
            self._known.clear()
        self._known[token] = subject
        return subject

    def _found(self, token: bytes) -> Subject | None:
        roles = self._callers.roles_of(token)
        if Role.OPERATOR in roles:
            return _OPERATOR
        if Role.SERVICE in roles:
            return _SERVICE
        name = None if self._file is None else self._file.tokens.get(digest_of(token))
        return None if name is None else self._subjects[name]

    def _subject_of_certificate(self, context: Context) -> Subject | None:
        assert self._file is not None
        for text in certificate_names(context.auth_context()):
            name = self._file.certificates.get(text)
            if name is not None:
                return self._subjects[name]
        return None

    def _renew(self) -> None:
        """Read changed files, at most once in `CHECK_INTERVAL_S`."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + CHECK_INTERVAL_S
        self._known.clear()  # the files of the roles may have changed
        if self._path is None or not self._watched.have_changed():
            return
        try:
            self._take(read_rights(self._path))
            _log.info("rights_file: %s has changed and is read", self._path)
        except ConfigError as error:
            self._failed_count += 1
            self._is_outdated = True
            _log.warning("%s; the rights that it gave before stay in force", error)

    def _take(self, file: RightsFile) -> None:
        assert self._path is not None
        self._file, self._is_outdated = file, False
        self._generation += 1
        self._subjects = {name: file.rights.subject(name) for name in file.names}
        self._anonymous = file.rights.anonymous
        self._take_quotas(file.quotas)
        self._watched.also(file.token_files)
        for path in file.token_files:
            if (mode := open_mode(path)) is not None:
                _log.warning("rights_file: other users can read %s (its mode is %o): chmod 600 %s", path, mode, path)

    def _take_quotas(self, limits: dict[str, QuotaLimits]) -> None:
        """Give each subject its quota. A quota that is gone has no limits any more, also for a request that waits.

        It is kept while it has something to count, so that limits that come back find the open streams and connections.
        """
        for name in self._quotas.keys() - limits.keys():
            self._quotas[name].change(QuotaLimits())
            if not self._quotas[name].is_used:
                del self._quotas[name]
        for name, given in limits.items():
            if name in self._quotas:
                self._quotas[name].change(given)
            else:
                self._quotas[name] = Quota(name, given, self._now_s)
            subject = self._anonymous if name == ANONYMOUS else self._subjects[name]
            subject.quota = self._quotas[name]

    _subjects: dict[str, Subject]
    _anonymous: Subject
    _watched: WatchedFiles


_OPERATOR, _SERVICE = Subject(OPERATOR, is_trusted=True), Subject(SERVICE, is_trusted=True)


def certificate_names(properties: Any) -> Iterator[str]:
    """Yield the names of a caller's certificate, from the properties of its connection."""
    for key in CERTIFICATE_NAMES:
        for value in properties.get(key, ()):
            yield value.decode("utf-8", "replace")
