# SPDX-License-Identifier: Apache-2.0
"""`reput version`."""

import platform

from cli.output.lines import JsonOption
from cli.output.tables import print_fields
from libs.runtime.version import VERSION


def version(as_json: JsonOption = False) -> None:
    """Print the versions of Reput, Python and gRPC.

    Example: reput version --json
    """
    from importlib.metadata import version as version_of

    versions: dict[str, object] = {
        "reput": VERSION,
        "python": platform.python_version(),
        "grpc": version_of("grpcio"),
    }
    print_fields(versions, as_json=as_json)
