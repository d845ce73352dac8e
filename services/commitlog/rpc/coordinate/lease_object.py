# SPDX-License-Identifier: Apache-2.0
"""Kept: the state of a log in a Lease of Kubernetes, with the conversion from and to the Lease. Pure.

The record is an annotation. The holder, its start and its duration are the Lease's own fields, for people and tools.
The versions of a View are annotations, too, because each renewal changes the version of the object. Each is the API
server's version before the change, so the versions increase with every change, also after a deletion of the Lease.
"""

from datetime import datetime

import msgspec
from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from msgspec import Struct

from libs.formats.state.leadership import LeadershipRecord
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, View
from services.commitlog.rpc.coordinate.record import decode, encode

RECORD = "reput.dev/record"
RECORD_VERSION = "reput.dev/record-version"
HOLDER_VERSION = "reput.dev/holder-version"


class Kept(Struct, frozen=True, kw_only=True):
    """The state in a version of the Lease."""

    record: LeadershipRecord | None = None
    record_version: int = 0
    holder: str = ""
    holder_version: int = 0
    duration_s: int = 0
    acquired_at: datetime | None = None
    renewed_at: datetime | None = None

    @property
    def beat(self) -> tuple[int, datetime | None]:
        """A value that differs after each renewal by the holder."""
        return self.holder_version, self.renewed_at

    def view(self, *, is_over: bool) -> View:
        """Return the state as a View. An expired lease has no holder."""
        holder, holder_version = ("", 0) if is_over else (self.holder, self.holder_version)
        return View(self.record, holder, self.record_version, holder_version)


def kept_in(lease: Lease | None) -> Kept:
    """Return the state in a Lease, empty for None. Raises CoordinatorUnavailable for errors that a person must fix."""
    if lease is None:
        return Kept()
    notes = (lease.metadata and lease.metadata.annotations) or {}
    spec = lease.spec or LeaseSpec()
    holder_version = version_of(notes.get(HOLDER_VERSION, "0"), f"the annotation {HOLDER_VERSION}")
    text = notes.get(RECORD)
    return Kept(
        record=None if text is None else decode(text.encode()),
        record_version=0 if text is None else version_of(notes.get(RECORD_VERSION), f"the annotation {RECORD_VERSION}"),
        holder=(spec.holderIdentity or "") if holder_version else "",
        holder_version=holder_version if spec.holderIdentity else 0,
        duration_s=spec.leaseDurationSeconds or 0,
        acquired_at=spec.acquireTime,
        renewed_at=spec.renewTime,
    )


def lease_of(kept: Kept, name: str, before: Lease | None) -> Lease:
    """Return a Lease with this state. It keeps all other content of the Lease before it. Raises Refused."""
    assert kept.record is not None
    versions = {RECORD_VERSION: kept.record_version, HOLDER_VERSION: kept.holder_version}
    meta = (before and before.metadata) or ObjectMeta(name=name)
    notes = {key: text for key, text in (meta.annotations or {}).items() if key not in versions}
    notes |= {key: str(version) for key, version in versions.items() if version}
    notes[RECORD] = encode(kept.record).decode()
    spec = msgspec.structs.replace(
        (before and before.spec) or LeaseSpec(),
        holderIdentity=kept.holder or None,
        leaseDurationSeconds=kept.duration_s or None,
        leaseTransitions=kept.record.epoch,
        acquireTime=kept.acquired_at,
        renewTime=kept.renewed_at,
    )
    return Lease(metadata=msgspec.structs.replace(meta, annotations=notes), spec=spec)


def version_of(text: str | None, what: str = "the version of the API server") -> int:
    """Return a version of an object. For all built-in objects of Kubernetes they are increasing numbers."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        raise CoordinatorUnavailable(f"{what} is {text!r}, and not a number")
    return int(text)
