# SPDX-License-Identifier: Apache-2.0
"""The needs of users of other languages in protos/: all imports, names of packages, and Google's messages unchanged."""

import re

import google.rpc.error_details_pb2
import google.rpc.status_pb2
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from tools.gen_stubs import PROTOS, find_sources, include_flags, run_protoc

SERVICES = {
    "commitlog": "CommitLog",
    "common": "Common",
    "delivery": "Delivery",
    "indexer": "Indexer",
    "janitor": "Janitor",
}
SOURCES = sorted((PROTOS / "reput").glob("**/*.proto"))


def test_imports_are_here() -> None:
    """Each import of a proto is in protos/, except the protos that come with each protoc."""
    assert SOURCES
    for source in [*find_sources(), *PROTOS.glob("google/**/*.proto")]:
        for name in re.findall(r'^import "(.*)";', source.read_text(), re.MULTILINE):
            assert name.startswith("google/protobuf/") or (PROTOS / name).is_file(), f"{source}: {name}"


def test_names_for_other_languages(subtests: pytest.Subtests) -> None:
    """Every file has the places of its stubs in Go, Java and C#."""
    for source in SOURCES:
        service = source.parent.parent.name
        options = dict(re.findall(r"^option (\w+) = (.*);$", source.read_text(), re.MULTILINE))
        with subtests.test(source.stem):
            assert options == {
                "csharp_namespace": f'"Reput.{SERVICES[service]}.V1"',
                "go_package": f'"reput/clients/go/reputpb/{service}/v1;{service}v1"',
                "java_multiple_files": "true",
                "java_package": f'"reput.{service}.v1"',
            }


@pytest.mark.parametrize("stubs", [google.rpc.status_pb2, google.rpc.error_details_pb2], ids=["status", "details"])
def test_googles_messages(stubs, tmp_path) -> None:
    """Our copies of Google's messages have the names, numbers, kinds and packages of the originals."""
    theirs: FileDescriptor = stubs.DESCRIPTOR
    described = tmp_path / "described"
    run_protoc([*include_flags(), f"--descriptor_set_out={described}", str(PROTOS / theirs.name)])
    ours = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file[0]
    options = theirs.GetOptions()
    for name in ("go_package", "java_package", "java_outer_classname", "java_multiple_files"):
        assert getattr(ours.options, name) == getattr(options, name)
    for message in ours.message_type:
        _compare(message, theirs.message_types_by_name[message.name])


def _compare(message, theirs) -> None:
    for field in message.field:
        other = theirs.fields_by_name[field.name]
        assert (field.number, field.type, field.label) == (other.number, other.type, other.label)
    for nested in message.nested_type:
        _compare(nested, theirs.nested_types_by_name[nested.name])
