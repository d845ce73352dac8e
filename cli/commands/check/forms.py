# SPDX-License-Identifier: Apache-2.0
"""The forms of a check's findings: Nagios' text, JSON, and a file for Prometheus' node_exporter. Pure: text out.

Nagios: https://www.monitoring-plugins.org/doc/guidelines.html - a line with the level, `|` and the numbers, then a line
for each finding.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from cli.commands.check.rules import Finding, Level, Limits, level_of
from cli.output.lines import printable


def nagios_text(findings: Sequence[Finding]) -> str:
    """Return the text of a Nagios plug-in."""
    level = level_of(findings)
    bad = [finding for finding in findings if finding.level is not Level.OK]
    head = "; ".join(finding.text for finding in bad[:2]) if bad else "; ".join(f.text for f in findings)
    more = f"; and {len(bad) - 2} more" if len(bad) > 2 else ""
    numbers = " ".join(_numbers(findings))
    lines = [f"REPUT {level.name} - {_plain(head + more)}" + (f" | {numbers}" if numbers else "")]
    for finding in findings:
        cure = f"; {finding.action}" if finding.action and finding.level is not Level.OK else ""
        lines.append(_plain(f"{finding.level.name} {finding.subject}: {finding.text}{cure}"))
    return "".join(f"{line}\n" for line in lines)


def unknown_text(why: str) -> str:
    """Return the text of a check that could not be made."""
    return f"REPUT UNKNOWN - {_plain(' '.join(why.split()))}\n"


def json_text(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON object on a single line."""
    level = level_of(findings)
    rows = []
    for finding in findings:
        row: dict[str, object] = {"subject": finding.subject, "level": finding.level.name, "text": finding.text}
        if finding.action and finding.level is not Level.OK:
            row["action"] = finding.action
        if (number := finding.number) is not None:
            limits = {"warning": _finite(number.limits.warning), "critical": _finite(number.limits.critical)}
            row["number"] = {"value": number.value, "unit": number.unit, **limits}
        rows.append(row)
    return json.dumps({"level": level.name, "code": level.value, "findings": rows}, ensure_ascii=False) + "\n"


def prometheus_text(findings: Sequence[Finding], time_s: float) -> str:
    """Return the findings as metrics: the level of each subject, and its worst number."""
    levels, worst = _by_subject(findings)
    lines = ["# HELP reput_check_level The level of a subject: 0 OK, 1 warning, 2 critical, 3 unknown."]
    lines += ["# TYPE reput_check_level gauge", f'reput_check_level{{subject="all"}} {level_of(findings).value}']
    lines += [f'reput_check_level{{subject="{subject}"}} {level.value}' for subject, level in levels.items()]
    for name, finding in worst.items():
        assert finding.number is not None
        lines += [f"# HELP {name} The worst number of {finding.subject} that was compared.", f"# TYPE {name} gauge"]
        lines.append(f"{name} {finding.number.value:g}")
    lines += ["# HELP reput_check_time_seconds The time of the check.", "# TYPE reput_check_time_seconds gauge"]
    return "".join(f"{line}\n" for line in [*lines, f"reput_check_time_seconds {time_s:.0f}"])


NAMES = {
    ("disk", "%"): "reput_check_disk_used_percent",
    ("index", "B"): "reput_check_index_behind_bytes",
    ("replication", "B"): "reput_check_replica_behind_bytes",
    ("janitor", "s"): "reput_check_janitor_age_seconds",
    ("certificate", ""): "reput_check_certificate_days",
    ("groups", ""): "reput_check_blocked_groups",
    ("backup", "s"): "reput_check_backup_age_seconds",
}
"""The metric of each number."""


def _by_subject(findings: Sequence[Finding]) -> tuple[dict[str, Level], dict[str, Finding]]:
    """Return the worst level of each subject, and the finding with the worst number of each metric."""
    levels: dict[str, Level] = {}
    worst: dict[str, Finding] = {}
    for finding in findings:  # the worst first
        levels.setdefault(finding.subject, finding.level)
        if finding.number is not None:
            name = NAMES[finding.subject, finding.number.unit]
            before = worst.get(name)
            assert before is None or before.number is not None
            if before is None or _is_worse(finding, before):
                worst[name] = finding
    return levels, worst


def _is_worse(one: Finding, other: Finding) -> bool:
    assert one.number is not None
    assert other.number is not None
    is_more = one.number.value > other.number.value
    return not is_more if one.number.limits.is_least else is_more


def _numbers(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the numbers as Nagios' performance data. Labels of a subject with several numbers are counted."""
    counts: Counter[str] = Counter()
    for finding in findings:
        if (number := finding.number) is None:
            continue
        name = NAMES[finding.subject, number.unit].removeprefix("reput_check_")
        counts[name] += 1
        label = name if counts[name] == 1 else f"{name}_{counts[name]}"
        bounds = f"{_range(number.limits, number.limits.warning)};{_range(number.limits, number.limits.critical)}"
        least = ";0;100" if number.unit == "%" else "" if number.limits.is_least else ";0"
        yield f"{label}={number.value:.15g}{number.unit};{bounds}{least}"


def _range(limits: Limits, limit: float) -> str:
    if not math.isfinite(limit):
        return ""
    return f"{limit:.15g}:" if limits.is_least else f"{limit:.15g}"


def _finite(limit: float) -> float | None:
    return limit if math.isfinite(limit) else None


def _plain(text: str) -> str:
    """Return a single line without `|`, behind which Nagios expects numbers."""
    return printable(text.replace("|", "/"))
