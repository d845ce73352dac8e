# SPDX-License-Identifier: Apache-2.0
"""A call is its request: the request's type determines the method and the parser of the answer."""

import importlib
from pathlib import Path

import reput
from reput_client.core.call import method_of


def test_every_request_of_the_api_tells_its_method() -> None:
    """No two methods of the API share a request."""
    root = Path(next(iter(reput.__path__))).parent
    names = [
        ".".join(path.relative_to(root).with_suffix("").parts) for path in root.rglob("reput/*/v1/*_service_pb2.py")
    ]
    files = [importlib.import_module(name).DESCRIPTOR for name in names]
    services = [service for file in files for service in file.services_by_name.values()]
    assert len(services) > 10
    for service in services:
        for method in service.methods:
            told = method_of(method.input_type)
            assert told.path == f"{service.full_name}/{method.name}"
            assert told.service == service.full_name.split(".")[1]
            assert told.parse(b"").DESCRIPTOR.full_name == method.output_type.full_name
