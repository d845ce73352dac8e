# SPDX-License-Identifier: Apache-2.0
"""Every method of every service, from the protos' own stubs, so that a new method is found here."""

import importlib
from pathlib import Path

import reput.commitlog.v1
from google.protobuf.descriptor import MethodDescriptor

STUBS = Path(reput.commitlog.v1.__path__[0]).parents[2]


def proto_methods() -> list[MethodDescriptor]:
    """Return all methods, in the order of the files' names."""
    modules = [
        importlib.import_module(".".join(path.relative_to(STUBS).with_suffix("").parts))
        for path in sorted((STUBS / "reput").glob("*/v*/*_pb2.py"))
    ]
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    assert len(services) > 10, f"where are the protos? {STUBS}"
    return [method for service in services for method in service.methods]


def path_of(method: MethodDescriptor) -> str:
    """Return the path of a method, as a call has it."""
    return f"/{method.containing_service.full_name}/{method.name}"
