# SPDX-License-Identifier: Apache-2.0
"""Settings of the CommitLog."""

from pathlib import Path
from typing import Any

import pytest

from libs.formats.state.replication import ROLE_ALIASES
from libs.runtime.config import load
from libs.runtime.errors import ConfigError
from services.commitlog.bootstrap import Settings, store_host

GIB = 1 << 30


def test_defaults_are_rocketmqs() -> None:
    """The defaults are RocketMQ's values."""
    config = load(Settings, section="commitlog", environment={}, flags={}).value.engine
    assert (config.segment_size_bytes, config.message_size_bytes_max) == (GIB, 4 << 20)
    assert (config.flush_mode, config.flush_interval_ms, config.flush_pages_min) == ("sync", 500, 4)
    assert (config.flush_thorough_interval_ms, config.sync_timeout_ms) == (10_000, 5_000)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"segment_size_bytes": 65_535}, "segment_size_bytes"),
        ({"segment_size_bytes": 1 << 31}, "segment_size_bytes"),
        ({"segment_size_bytes": 70_000}, "segment_size_bytes"),
        ({"flush_mode": "never"}, "flush_mode"),
        ({"flush_interval_ms": 0}, "flush_interval_ms"),
        ({"transient_store_pool": True}, "transient_store_pool needs flush_mode async"),
        ({"transient_store_pool_segment_count": 0}, "transient_store_pool_segment_count"),
        ({"warm_segments": True, "preallocate": False}, "warm_segments needs preallocate"),
        ({"role": "slave"}, "role"),
        ({"role": "follower"}, "role follower needs leader_target"),
        ({"role": "leader"}, "role is .leader."),
        ({"default_queue_count": 65_536}, "default_queue_count"),
        ({"store_host": "example.org:7101"}, "store_host"),
        ({"store_host": "1.2.3.4"}, "store_host"),
        ({"message_delay_level": "1s 5x"}, "message_delay_level"),
        ({"append_inflight_bytes_max": 1 << 20}, "append_inflight_bytes_max"),
        ({"append_stream_inflight_bytes_max": 1 << 20}, "append_stream_inflight_bytes_max"),
        ({"segment_sise_bytes": GIB}, "segment-size-bytes"),
    ],
)
def test_bad_settings(flags: dict[str, Any], named: str) -> None:
    """An impossible setting is refused in a line that names it."""
    with pytest.raises(ConfigError, match=named) as caught:
        load(Settings, section="commitlog", environment={}, flags=flags)
    assert "\n" not in str(caught.value)


def test_environment_and_flags() -> None:
    """Environment variables have the service's name as a prefix, and flags override them."""
    environment = {"REPUT_COMMITLOG_DATA_DIR": "/a", "REPUT_COMMITLOG_PORT": "1"}
    settings = load(Settings, section="commitlog", environment=environment, flags={"data_dir": "/b"}).value
    assert (settings.engine.data_dir, settings.server.port) == (Path("/b"), 1)


@pytest.mark.parametrize(
    ("listen_host", "expected"),
    [
        ("127.0.0.1", "127.0.0.1:9"),
        ("10.2.3.4", "10.2.3.4:9"),
        ("::1", "[::1]:9"),
        ("0.0.0.0", "127.0.0.1:9"),
        ("::", "127.0.0.1:9"),
        ("localhost", "127.0.0.1:9"),
    ],
)
def test_store_host(listen_host: str, expected: str) -> None:
    """The store host of records is the listening address, and never a wildcard."""
    assert str(store_host(listen_host, 9)) == expected


@pytest.mark.parametrize(("word", "name"), [*ROLE_ALIASES.items(), *((name, name) for name in ROLE_ALIASES.values())])
def test_names_of_roles(word: str, name: str) -> None:
    """A setting names a role by the field's word or by RocketMQ's; the log uses RocketMQ's name, as its files do."""
    environment = {"REPUT_COMMITLOG_ROLE": word, "REPUT_COMMITLOG_LEADER_TARGET": "localhost:1" * (name == "slave")}
    config = load(Settings, section="commitlog", environment=environment, flags={}).value.engine
    assert (config.role_name, config.is_follower) == (name, name == "slave")
