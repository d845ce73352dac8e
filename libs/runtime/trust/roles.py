# SPDX-License-Identifier: Apache-2.0
"""Roles: the permissions of callers, by the rule of each method in the protos (reput/common/v1/method_rule.proto).

The rules of all our services are read from the stubs at the start of a process, also of services that it does not
serve. A method without a rule can't be served: `service_handler` refuses it at the start of the process.
docs/security.md describes how a caller shows its role.
"""

import enum
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from reput.common.v1 import method_rule_pb2
from reput.common.v1.method_rule_pb2 import MethodRule

STUBS = Path(method_rule_pb2.__file__).parents[3]


class Role(enum.Flag):
    """The roles of a caller. A value may combine several roles."""

    NOBODY = 0
    CLIENT = enum.auto()
    SERVICE = enum.auto()
    OPERATOR = enum.auto()
    DOOR = enum.auto()
    """Gateways: they may pass the identity of their callers on. No method needs it."""


def rule_of(method: MethodDescriptor) -> MethodRule:
    """Return the rule of a method. A method without a rule has ROLE_UNSPECIFIED and NEEDS_UNSPECIFIED."""
    return method.GetOptions().Extensions[method_rule_pb2.rule]


def rules_of(service: ServiceDescriptor) -> dict[str, MethodRule]:
    """Return the rules of a service by the path of the method, as in a call. A method without a role has no rule."""
    rules = {f"/{service.full_name}/{method.name}": rule_of(method) for method in service.methods}
    return {path: rule for path, rule in rules.items() if rule.role}


def _services() -> Iterator[ServiceDescriptor]:
    for path in sorted(STUBS.glob("reput/*/v*/*_service_pb2.py")):
        module = importlib.import_module(".".join(path.relative_to(STUBS).with_suffix("").parts))
        yield from module.DESCRIPTOR.services_by_name.values()


RULES: Mapping[str, MethodRule] = {path: rule for service in _services() for path, rule in rules_of(service).items()}
"""Maps the path of each method to its rule."""
ROLES: Mapping[str, Role] = {
    path: Role[MethodRule.Role.Name(rule.role).removeprefix("ROLE_")] for path, rule in RULES.items()
}
"""Maps the path of each method to the role that it needs."""
