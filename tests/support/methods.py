# SPDX-License-Identifier: Apache-2.0
"""Every method of every service, from the protos' own stubs, so that a new method is found here."""

import importlib
from pathlib import Path

import reput.commitlog.v1
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

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


def without_rule(method: MethodDescriptor) -> ServiceDescriptor:
    """The service of a method as if the method's rule had been forgotten in the protos."""
    file = FileDescriptorProto.FromString(method.containing_service.file.serialized_pb)
    service = next(service for service in file.service if service.name == method.containing_service.name)
    next(copy for copy in service.method if copy.name == method.name).ClearField("options")
    pool = DescriptorPool()
    _add_imports(pool, method.containing_service.file)
    pool.Add(file)
    return pool.FindServiceByName(method.containing_service.full_name)


def _add_imports(pool: DescriptorPool, file: FileDescriptor) -> None:
    for imported in file.dependencies:
        _add_imports(pool, imported)
        pool.AddSerializedFile(imported.serialized_pb)
