# SPDX-License-Identifier: Apache-2.0
"""`reput check`: pure rules turn facts into findings, and each form says the same as the exit code."""

import json
import socket
import ssl
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.janitor.v1 import retention_service_pb2 as retention_pb

from cli.commands.check.check import replace_file
from cli.commands.check.forms import json_text, nagios_text, prometheus_text, unknown_text
from cli.commands.check.rules import Facts, Level, Limits, Thresholds, findings_of, level_of
from cli.commands.check.thresholds import SIZES, TIMES_S, limits_of
from libs.runtime.trust.certificates import certificate_end_s
from tests.support.certificates import self_signed
from tests.support.reput_up import run_here

NOW_S = 1_800_000_000.0
LOG, INDEX = "log:7101", "index:7102"


def at(seconds_ago: float) -> Any:
    """A moment before the check."""
    return datetime.fromtimestamp(NOW_S - seconds_ago, UTC)


def log_of(**fields: Any) -> log_pb.GetStatusResponse:
    """A log that leads, with two copies."""
    directory = log_pb.LogDirectory(
        path="/data", disk_used_percent=50, disk_free_bytes=1 << 30, disk_total_bytes=1 << 31
    )
    usual: dict[str, Any] = {
        "state": log_pb.LOG_STATE_SERVING,
        "max_physical_offset": 2 << 30,
        "confirmed_physical_offset": 2 << 30,
        "in_sync_replica_ids": ["a", "b"],
        "live_in_sync_count": 2,
        "min_in_sync_count": 2,
        "replicas": [log_pb.Replica(replica_id="b", is_in_sync=True, received_physical_offset=2 << 30)],
        "log_directories": [directory],
    }
    return log_pb.GetStatusResponse(**(usual | fields))


def index_of(**fields: Any) -> index_pb.GetStatusResponse:
    """An Indexer that is up to date."""
    usual: dict[str, Any] = {
        "state": index_pb.REPUT_STATE_LIVE,
        "is_complete": True,
        "disk_total_bytes": 1 << 31,
        "disk_used_percent": 50,
    }
    return index_pb.GetStatusResponse(**(usual | {"indexed_physical_offset": 2 << 30} | fields))


def topic_of(name: str, **fields: Any) -> retention_pb.TopicRetention:
    """A topic with a retention of its own."""
    return retention_pb.TopicRetention(topic=name, **({"retention_hours": 100} | fields))


def topics_of(*topics: retention_pb.TopicRetention) -> retention_pb.GetStatusResponse:
    """A Janitor that is well, with these topics."""
    return retention_pb.GetStatusResponse(last_check_time=at(5), topics=topics, topic_count=len(topics))


def facts(**fields: Any) -> Facts:
    """A store that is well, but for the given fields."""
    usual: dict[str, Any] = {
        "logs": {LOG: log_of()},
        "indexes": {INDEX: index_of()},
        "retention": retention_pb.GetStatusResponse(last_check_time=at(5), start_time=at(100)),
        "certificates": {LOG: NOW_S + 90 * 86_400},
        "blocked": [],
    }
    return Facts(NOW_S, **(usual | fields))


WELL = facts()
CASES: list[tuple[str, Facts, Level, str]] = [
    (
        "away",
        facts(away={"Indexer at index:7102": "no process listens there"}),
        Level.CRITICAL,
        "Indexer at index:7102",
    ),
    ("token", facts(unknown={"Janitor at j:1": "UNAUTHENTICATED"}), Level.UNKNOWN, "Janitor at j:1 refuses to answer"),
    ("full", facts(logs={LOG: log_of(refusals=["STORE_FULL"])}), Level.CRITICAL, "appends are refused: STORE_FULL"),
    ("nobody leads", facts(logs={LOG: log_of(refusals=["NOT_LEADER"])}), Level.CRITICAL, "log:7101 does not lead"),
    (
        "recovers",
        facts(logs={LOG: log_pb.GetStatusResponse(state=log_pb.LOG_STATE_RECOVERING)}),
        Level.WARNING,
        "looks for its end",
    ),
    (
        "disk",
        facts(logs={LOG: log_of(log_directories=[log_pb.LogDirectory(path="/d", disk_used_percent=80)])}),
        Level.WARNING,
        "80 % used",
    ),
    ("disk of the indexes", facts(indexes={INDEX: index_of(disk_used_percent=95)}), Level.CRITICAL, "95 % used"),
    ("behind", facts(indexes={INDEX: index_of(indexed_physical_offset=0)}), Level.CRITICAL, "2.0 GiB behind"),
    ("rebuilds", facts(indexes={INDEX: index_of(is_complete=False)}), Level.WARNING, "builds the indexes again"),
    (
        "stopped",
        facts(indexes={INDEX: index_of(state=index_pb.REPUT_STATE_STOPPED, last_error="no room")}),
        Level.CRITICAL,
        "stands still: no room",
    ),
    ("no log", facts(indexes={INDEX: index_of(is_log_away=True)}), Level.CRITICAL, "can't reach its CommitLog"),
    ("replica gone", facts(logs={LOG: log_of(replicas=[])}), Level.WARNING, "not connected: b"),
    (
        "too few",
        facts(logs={LOG: log_of(replicas=[], live_in_sync_count=1)}),
        Level.CRITICAL,
        "1 logs are in sync and connected, 2 must be",
    ),
    (
        "replica behind",
        facts(logs={LOG: log_of(replicas=[log_pb.Replica(replica_id="b", received_physical_offset=0)])}),
        Level.CRITICAL,
        "replica b is 2.0 GiB behind",
    ),
    (
        "follower out",
        facts(
            logs={
                LOG: log_of(),
                "b:1": log_of(
                    following=log_pb.Following(
                        state=log_pb.FOLLOWING_STATE_OUT, leader_target=LOG, last_error="another history"
                    )
                ),
            }
        ),
        Level.CRITICAL,
        "another history",
    ),
    (
        "janitor stopped",
        facts(retention=retention_pb.GetStatusResponse(last_check_time=at(7200))),
        Level.CRITICAL,
        "looked 2 h ago",
    ),
    (
        "janitor never looked",
        facts(retention=retention_pb.GetStatusResponse(start_time=at(700))),
        Level.WARNING,
        "11 min",
    ),
    (
        "retention fails",
        facts(retention=retention_pb.GetStatusResponse(last_check_time=at(5), last_error="no route")),
        Level.WARNING,
        "no route",
    ),
    (
        "lost",
        facts(retention=retention_pb.GetStatusResponse(last_check_time=at(5), lost_segment_count=2)),
        Level.CRITICAL,
        "2 segments went before",
    ),
    (
        "a topic with a longer retention is not known",
        facts(retention=topics_of(topic_of("audit", is_longer=True, error="no route"), topic_of("noise"))),
        Level.WARNING,
        "topic audit are not known: no route; all segments stay",
    ),
    (
        "many topics are not known",
        facts(retention=topics_of(*(topic_of(f"t{number}", error="no route") for number in range(5)))),
        Level.WARNING,
        "and of 4 more topics",
    ),
    ("certificate", facts(certificates={LOG: NOW_S + 86_400}), Level.CRITICAL, "ends in 1 d"),
    ("certificate is over", facts(certificates={LOG: NOW_S - 3600}), Level.CRITICAL, "ended 1 h ago"),
    ("group", facts(blocked=["billing at orders: a damaged record"]), Level.WARNING, "billing at orders"),
]


def test_topics_with_a_retention_of_their_own() -> None:
    """They are a subject of their own, with the longest retention that holds segments; without them there is none."""
    known = topics_of(topic_of("noise"), topic_of("audit", is_longer=True, retention_hours=720))
    (found,) = (one for one in findings_of(facts(retention=known), Thresholds()) if one.subject == "topics")
    assert (found.level, found.text) == (
        Level.OK,
        "2 topics have a retention of their own; segments stay up to 720 h for topic audit",
    )
    assert all(one.subject != "topics" for one in findings_of(WELL, Thresholds()))
    assert 'subject="topics"} 0' in prometheus_text([found], NOW_S)


def test_a_store_that_is_well() -> None:
    """A store that is well has only OK, and a number for each limit."""
    findings = findings_of(WELL, Thresholds())
    assert {finding.level for finding in findings} == {Level.OK}
    first = nagios_text(findings).splitlines()[0]
    assert first.startswith("REPUT OK - ")
    numbers = first.partition(" | ")[2].split()
    assert "disk_used_percent=50%;80;90;0;100" in numbers
    assert "index_behind_bytes=0B;67108864;1073741824;0" in numbers
    assert "janitor_age_seconds=5s;600;3600;0" in numbers
    assert "certificate_days=90;21:;7:" in numbers
    assert "blocked_groups=0;1;;0" in numbers


@pytest.mark.parametrize(("bad", "level", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_fault(bad: Facts, level: Level, said: str) -> None:
    """Each fault has its level, and comes first in all forms, with a cure."""
    findings = findings_of(bad, Thresholds())
    assert level_of(findings) is level
    assert said in findings[0].text
    assert findings[0].action
    lines = nagios_text(findings).splitlines()
    assert lines[0].startswith(f"REPUT {level.name} - ")
    assert len(lines) == 1 + len(findings)
    answer = json.loads(json_text(findings))
    assert (answer["level"], answer["code"]) == (level.name, int(level))
    samples = {
        (sample.name, sample.labels.get("subject")): sample.value
        for family in text_string_to_metric_families(prometheus_text(findings, NOW_S))
        for sample in family.samples
    }
    assert samples["reput_check_level", "all"] == int(level)
    assert samples["reput_check_level", findings[0].subject] == int(level)


def test_critical_wins_over_unknown() -> None:
    """A service that refuses the question does not hide a full disk."""
    both = facts(unknown={"Janitor at j:1": "no"}, logs={LOG: log_of(refusals=["STORE_FULL"])})
    assert level_of(findings_of(both, Thresholds())) is Level.CRITICAL
    assert level_of([]) is Level.UNKNOWN


def test_limits_are_options() -> None:
    """Each limit moves its level, and `off` ends it."""
    bad = facts(indexes={INDEX: index_of(indexed_physical_offset=0)})
    for text, level in (("1B,2B", Level.CRITICAL), ("1GiB,4GiB", Level.WARNING), ("off,off", Level.OK)):
        limits = Thresholds(index_bytes=limits_of(text, flag="--index", units=SIZES))
        assert level_of(findings_of(bad, limits)) is level
    assert limits_of("10m,1h", flag="--janitor", units=TIMES_S) == Limits(600, 3600)
    assert limits_of("off,7", flag="--certificate", is_least=True).level(6) is Level.CRITICAL
    assert limits_of("off,7", flag="--certificate", is_least=True).level(8) is Level.OK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "two limits"),
        ("80", "two limits"),
        ("80,90,95", "two limits"),
        ("90,80", "must not be above"),
        ("80,101", "at most 100"),
        ("-1,90", "a number"),
        ("nan,90", "a number"),
        ("80,9e9", "a number"),
        ("80%,90%", "a number"),
    ],
)
def test_wrong_limits(text: str, said: str) -> None:
    """A wrong limit is UNKNOWN, in a line with the option, the value and the rule, before anything is asked."""
    with pytest.raises(ValueError, match=said):
        limits_of(text, flag="--disk", greatest=100)
    result = run_here("check", f"--disk={text}")
    assert result.code == 3
    assert result.output.startswith(f"REPUT UNKNOWN - --disk is {text!r}")


def test_usage_errors_are_unknown() -> None:
    """An option that is not known never looks like CRITICAL."""
    assert run_here("check", "--no-such-option").code == 3
    assert run_here("--commitlog", "nowhere", "check").code == 3


def test_texts_of_services_stay_in_their_lines() -> None:
    """A text of a service can't begin a line or the numbers of Nagios, or a metric."""
    evil = "x | disk=0%\nREPUT OK - fine\x1b[2J"
    findings = findings_of(facts(away={"CommitLog at a:1": evil}), Thresholds())
    text = nagios_text(findings)
    assert len(text.splitlines()) == 1 + len(findings)
    assert text.splitlines()[0].count("|") == 1
    assert "\x1b" not in text
    assert "fine" not in prometheus_text(findings, NOW_S)
    assert unknown_text(evil).count("\n") == 1


def test_the_worst_number_is_the_metric() -> None:
    """Of several numbers of a subject the metric has the worst: the largest, or the fewest days."""
    bad = facts(
        certificates={"a": NOW_S + 86_400, "b": NOW_S + 2 * 86_400}, indexes={INDEX: index_of(disk_used_percent=70)}
    )
    text = prometheus_text(findings_of(bad, Thresholds()), NOW_S)
    assert "reput_check_certificate_days 1\n" in text
    assert "reput_check_disk_used_percent 70\n" in text


def test_only_logs_that_take_segments_have_a_disk() -> None:
    """A directory that takes no new segments is no reason for an alarm."""
    kept = log_pb.LogDirectory(path="/old", disk_used_percent=100, is_read_only=True)
    bad = replace(WELL, logs={LOG: log_of(log_directories=[*log_of().log_directories, kept])})
    assert level_of(findings_of(bad, Thresholds())) is Level.OK


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    """Other users can read the file. A failed write leaves the old text, and nothing beside it."""
    file = tmp_path / "reput.prom"
    replace_file(file, "old\n")
    replace_file(file, "new\n")
    assert file.read_text() == "new\n"
    assert file.stat().st_mode & 0o777 == 0o644
    with pytest.raises(UnicodeEncodeError):
        replace_file(file, "\ud800")
    assert [one.name for one in tmp_path.iterdir()] == ["reput.prom"]
    assert file.read_text() == "new\n"
    result = run_here("check", "--output", str(tmp_path / "no" / "reput.prom"))
    assert result.code == 3
    assert "REPUT UNKNOWN - " in result.output


def test_the_end_of_a_certificate_that_a_server_shows(tmp_path: Path) -> None:
    """The end of a server's certificate is read in a handshake, also when no authority signed it; else it is None."""
    files = self_signed(tmp_path, "server", days=2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["server.pem"], files["server.key"])

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as plain, suppress(OSError), context.wrap_socket(plain, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        end_s = certificate_end_s(target, timeout_s=10)
        serving.join()
    assert end_s is not None
    assert 0 < end_s - datetime.now(UTC).timestamp() <= 2 * 86_400
    assert certificate_end_s("127.0.0.1:9", timeout_s=1) is None
