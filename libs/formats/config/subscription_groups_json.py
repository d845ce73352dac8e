# SPDX-License-Identifier: Apache-2.0
"""subscriptionGroup.json: RocketMQ's retry settings of groups. Spec: docs/formats/config_files.md section 5.

RocketMQ's counterparts are SubscriptionGroupManager, SubscriptionGroupConfig and GroupRetryPolicy.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from libs.formats.config import config_json
from libs.formats.config.config_json import DataVersion
from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX

RETRY_COUNT_DEFAULT = 16
EXPONENT_MAX = 32
"""The highest exponent by which RocketMQ grows a delay."""
CUSTOMIZED, EXPONENTIAL = "CUSTOMIZED", "EXPONENTIAL"
NEW_GROUP: Mapping[str, Any] = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeFromMinEnable": True,
    "consumeTimeoutMinute": 15,
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}
"""The fields of a group that RocketMQ creates."""


class SubscriptionGroup(Struct, frozen=True, kw_only=True):
    """A group. Times are in milliseconds."""

    is_enabled: bool = True
    is_orderly: bool = False
    retry_count_max: int = RETRY_COUNT_DEFAULT
    retry_policy: Mapping[str, Any] = field(default_factory=lambda: {"type": CUSTOMIZED})
    """The policy as it was read. `customized` creates a policy."""
    others: Mapping[str, Any] = field(default_factory=lambda: dict(NEW_GROUP))
    """Fields that Reput does not use, as they were read."""

    @property
    def backoffs_ms(self) -> tuple[int, ...]:
        """Delays by the number of retries. The last delay is for all further retries. Empty: RocketMQ's own delays."""
        return _backoffs(self.retry_policy)


class SubscriptionGroupsFile(Struct, frozen=True):
    """The whole file, by the groups' names. `others` are fields of the file that Reput does not use."""

    groups: dict[str, SubscriptionGroup] = field(default_factory=dict)
    data_version: DataVersion | None = field(default_factory=DataVersion)
    others: Mapping[str, Any] = field(default_factory=lambda: {"forbiddenTable": {}})


def loads(text: str) -> SubscriptionGroupsFile:
    """Return the file's content. Raises BadField or BadLength."""
    root = config_json.parse_object(text)
    table = config_json.mapping(root.pop("subscriptionGroupTable", {}), "subscriptionGroupTable")
    version = root.pop("dataVersion", None)
    groups = {name: _group(name, config_json.mapping(value, name)) for name, value in table.items()}
    return SubscriptionGroupsFile(groups, None if version is None else DataVersion.from_json(version), root)


def dumps(file: SubscriptionGroupsFile) -> str:
    """Return the file as RocketMQ writes it, fields in alphabetical order."""
    parts = {} if file.data_version is None else {"dataVersion": file.data_version.to_json()}
    table = {name: _to_json(name, group) for name, group in file.groups.items()}
    return config_json.dumps(dict(sorted({**parts, **file.others, "subscriptionGroupTable": table}.items())))


def _group(name: str, fields: dict[str, Any]) -> SubscriptionGroup:
    if fields.pop("groupName", name) != name:
        raise BadField(position=0, reason=f"group {name[:80]!r} has another name inside", field="groupName")
    group = SubscriptionGroup(
        is_enabled=_flag(fields.pop("consumeEnable", True), "consumeEnable"),
        is_orderly=_flag(fields.pop("consumeMessageOrderly", False), "consumeMessageOrderly"),
        retry_count_max=_int32(fields.pop("retryMaxTimes", RETRY_COUNT_DEFAULT), "retryMaxTimes", least=-1),
        retry_policy=config_json.mapping(fields.pop("groupRetryPolicy", {"type": CUSTOMIZED}), "groupRetryPolicy"),
        others=fields,
    )
    _backoffs(group.retry_policy)  # refuses an invalid policy
    return group


def customized(backoffs_ms: Sequence[int]) -> Mapping[str, Any]:
    """Return a retry policy of these delays, and RocketMQ's own policy without delays."""
    own = {"customizedRetryPolicy": {"next": tuple(backoffs_ms)}} if backoffs_ms else {}
    return {**own, "type": CUSTOMIZED}


def _backoffs(policy: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the delays of a GroupRetryPolicy, empty for the default policy. Raises BadField."""
    kind = policy.get("type", CUSTOMIZED)
    if kind == CUSTOMIZED:
        own = config_json.mapping(policy.get("customizedRetryPolicy", {}), "customizedRetryPolicy")
        delays = own.get("next", [])
        if not isinstance(delays, list | tuple):
            raise BadField(position=0, reason="next is not a list", field="customizedRetryPolicy")
        return tuple(config_json.integer(delay, "next", least=0) for delay in delays)
    if kind != EXPONENTIAL:
        raise BadField(position=0, reason=f"{str(kind)[:40]!r} is no type of retries", field="groupRetryPolicy")
    own = config_json.mapping(policy.get("exponentialRetryPolicy", {}), "exponentialRetryPolicy")
    initial = config_json.integer(own.get("initial", 5_000), "initial", least=1)
    most = config_json.integer(own.get("max", 7_200_000), "max", least=1)
    multiplier = config_json.integer(own.get("multiplier", 2), "multiplier", least=1)
    delays = [min(most, initial * multiplier**exponent) for exponent in range(EXPONENT_MAX + 1)]
    growing = list(itertools.takewhile(lambda delay: delay < max(delays), delays))
    return (*growing, max(delays))


def _to_json(name: str, group: SubscriptionGroup) -> Mapping[str, Any]:
    known = {
        "consumeEnable": group.is_enabled,
        "consumeMessageOrderly": group.is_orderly,
        "groupName": name,
        "groupRetryPolicy": _arrays(group.retry_policy),
        "retryMaxTimes": group.retry_count_max,
    }
    return dict(sorted({**group.others, **known}.items()))


def _arrays(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the policy with its delays in the form that RocketMQ writes."""
    own = policy.get("customizedRetryPolicy")
    return {**policy, "customizedRetryPolicy": {"next": tuple(own["next"])}} if own and "next" in own else policy


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise BadField(position=0, reason=f"{name} is {str(value)[:40]}", field=name)
    return value


def _int32(value: object, name: str, *, least: int) -> int:
    return config_json.integer(value, name, least=least, most=INT32_MAX)
