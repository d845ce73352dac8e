# SPDX-License-Identifier: Apache-2.0
"""GroupConfigService over the engine's settings of groups."""

from google.protobuf.duration import from_milliseconds
from reput.indexer.v1 import group_config_service_pb2 as messages

from libs.formats.records.delivery_record import ATTEMPTS_MAX, BACKOFFS_MAX
from libs.requests import arguments
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument
from services.indexer.engine.groups.group_configs import GroupConfig, GroupConfigs

GROUP_COUNT_MAX = 1_000
BACKOFF_MS_MAX = 12 * 3600 * 1000


class GroupConfigServicer:
    """Serves reput.indexer.v1.GroupConfigService."""

    def __init__(self, configs: GroupConfigs) -> None:
        self._configs = configs

    async def StoreGroupConfigs(
        self, request: messages.StoreGroupConfigsRequest, _: object
    ) -> messages.StoreGroupConfigsResponse:
        """Store settings of groups, and delete settings of other groups."""
        for field in ("configs", "deleted_groups"):
            check_range(len(getattr(request, field)), field, most=GROUP_COUNT_MAX)
        configs = {
            arguments.group(config.group): _checked(config, f"configs[{index}].")
            for index, config in enumerate(request.configs)
        }
        await self._configs.store(configs, [arguments.group(name) for name in request.deleted_groups])
        return messages.StoreGroupConfigsResponse()

    async def GetGroupConfig(
        self, request: messages.GetGroupConfigRequest, _: object
    ) -> messages.GetGroupConfigResponse:
        """Return the settings of a group, if it has settings."""
        found = self._configs.find(arguments.group(request.group))
        return messages.GetGroupConfigResponse(config=None if found is None else _message(request.group, found))


def _checked(config: messages.GroupConfig, prefix: str) -> GroupConfig:
    if len(config.backoffs) > BACKOFFS_MAX:
        raise BadArgument(
            f"must be at most {BACKOFFS_MAX}", field=f"{prefix}backoffs", value=len(config.backoffs), limit=BACKOFFS_MAX
        )
    return GroupConfig(
        attempts_max=check_range(config.attempts_max, f"{prefix}attempts_max", least=1, most=ATTEMPTS_MAX),
        backoffs_ms=tuple(
            check_range(
                one.seconds * 1000 + one.nanos // 1_000_000, f"{prefix}backoffs[{index}] in ms", most=BACKOFF_MS_MAX
            )
            for index, one in enumerate(config.backoffs)
        ),
        is_ordered=config.is_ordered,
        is_paused=config.is_paused,
    )


def _message(group: str, config: GroupConfig) -> messages.GroupConfig:
    return messages.GroupConfig(
        group=group,
        attempts_max=config.attempts_max,
        backoffs=map(from_milliseconds, config.backoffs_ms),
        is_ordered=config.is_ordered,
        is_paused=config.is_paused,
    )
