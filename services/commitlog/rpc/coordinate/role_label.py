# SPDX-License-Identifier: Apache-2.0
"""RoleLabel: labels this process' own pod as leader or follower, so that a Service may select the leader.

The label is only a hint: it comes late, it stays on a pod that died, and two pods may have it for a while.
Callers: a single event loop.
"""

import contextlib
from collections.abc import Callable

from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from libs.machine.loop import SupervisedLoop
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable
from services.commitlog.rpc.coordinate.kubernetes_api import Conflict, KubernetesApi
from services.commitlog.rpc.coordinate.settings import KubernetesConfig

LABEL = "reput.dev/role"
LEADER, FOLLOWER = "leader", "follower"
LOOK_MS = 250


class RoleLabel:
    """The label of a process' pod. The constructor raises ConfigError."""

    __slots__ = ("_api", "_leads", "_pod", "_told", "loop")

    def __init__(self, config: KubernetesConfig, leads: Callable[[], bool]) -> None:
        assert config.pod
        self._pod, self._leads = config.pod, leads
        self._told = ""
        self._api = KubernetesApi(config)
        self.loop = SupervisedLoop(
            "role label", self._step, interval_ms=LOOK_MS, expected_errors=(CoordinatorUnavailable, Conflict)
        )

    async def stop(self) -> None:
        """Try to label the pod as a follower, and then stop."""
        await self.loop.stop()
        with contextlib.suppress(CoordinatorUnavailable, Conflict):
            await self._tell(FOLLOWER)
        await self._api.close()

    async def _step(self) -> None:
        await self._tell(LEADER if self._leads() else FOLLOWER)

    async def _tell(self, role: str) -> None:
        if role == self._told:
            return
        self._told = ""  # until the answer is known
        patch = {"metadata": {"labels": {LABEL: role}}}
        async with self._api.asking():
            await self._api.client.patch(Pod, self._pod, patch, patch_type=PatchType.MERGE)
        self._told = role
