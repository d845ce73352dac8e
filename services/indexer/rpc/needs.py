# SPDX-License-Identifier: Apache-2.0
"""Answers methods as their rule in the protos needs it while the indexes lack records that were answered from them.

A method whose rule does not name its need fails the start, so that no method is forgotten.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeAlias

from google.protobuf.descriptor import ServiceDescriptor
from reput.common.v1.method_rule_pb2 import MethodRule

from libs.runtime.rpc.handlers import Around
from libs.runtime.trust.roles import rule_of
from services.indexer.engine.follow.completeness import Completeness

_Need: TypeAlias = Callable[[Completeness], AbstractContextManager[Callable[[], None]]]

_NEEDS: Mapping["MethodRule.Needs.ValueType", _Need | None] = {
    MethodRule.NEEDS_NOTHING: None,
    MethodRule.NEEDS_FOUND: Completeness.finding,
    MethodRule.NEEDS_ALL: Completeness.answering,
}


def around(service: ServiceDescriptor, completeness: Completeness) -> dict[str, Around]:
    """Return the context managers in which the methods of a service are answered."""
    rules = {method.name: rule_of(method) for method in service.methods}
    unknown = {name for name, rule in rules.items() if rule.needs not in _NEEDS}
    assert not unknown, f"{service.full_name}: the protos do not say what {unknown} need"
    needs = {name: _NEEDS[rule.needs] for name, rule in rules.items()}
    return {name: functools.partial(need, completeness) for name, need in needs.items() if need is not None}
