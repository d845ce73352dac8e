# SPDX-License-Identifier: Apache-2.0
"""The ring of samples: its bound, its places, missing samples, and the charts."""

import math

import pytest
from reput_client import Topic

from services.console.pages.chart import GAP, HEIGHT, WIDTH, line
from services.console.pages.history import FIELDS, IDLE_SAMPLES, POINTS, SAMPLES, SPANS_MS, STEP_MS, Ring, chart_of
from services.console.pages.topics import shown_topics, topics_page
from services.console.web.rendering import Renderer

NOW_MS = 1_800_000_000_000 // STEP_MS * STEP_MS


def test_memory_is_bounded() -> None:
    """However many names come and for how long, the arrays take no more than their places."""
    ring = Ring(10)
    bound = 10 * 4 * SAMPLES * (len(FIELDS["topic"]) + len(FIELDS["group"]))
    for at in range(3):
        names = [f"name-{at}-{number}" for number in range(500)]
        now_ms = NOW_MS + at * 2 * SAMPLES * STEP_MS
        ring.put("topic", now_ms, dict.fromkeys(names, (1.0, 1.0)))
        ring.put("group", now_ms, dict.fromkeys(names, (1.0, 1.0, 1.0)))
        assert (len(ring.names("topic")), len(ring.names("group"))) == (10, 10)
        assert ring.size_bytes == bound
    assert bound / 10 < 180_000


def test_a_place_goes_to_active_names_after_an_idle_hour() -> None:
    """An active name gets the place of the name that has been idle longest, and never the place of an active name."""
    ring = Ring(2)
    ring.put("topic", NOW_MS, {"idle": (0.0, 0.0), "busy": (1.0, 0.0)})
    later = NOW_MS + (IDLE_SAMPLES - 1) * STEP_MS
    ring.put("topic", later, {"idle": (0.0, 0.0), "busy": (1.0, 0.0), "new": (5.0, 0.0)})
    assert ring.names("topic") == ("idle", "busy")
    ring.put("topic", later + STEP_MS, {"quiet": (0.0, 0.0), "new": (5.0, 0.0), "newer": (5.0, 0.0)})
    assert ring.names("topic") == ("busy", "new")
    ring.put("topic", later + 2 * STEP_MS, {"none": (math.nan, math.nan)})
    assert ring.names("topic") == ("busy", "new")
    assert not ring.history("topic", "idle", "1h", later).is_remembered


def test_missed_samples_are_not_known() -> None:
    """A missed sample is a gap, also where old samples were in the same places, and after a whole day."""
    ring = Ring(1)
    for at in range(SAMPLES):
        ring.put("group", NOW_MS + at * STEP_MS, {"g": (7.0, 7.0, 7.0)})
    end_ms = NOW_MS + (SAMPLES - 1) * STEP_MS
    assert set(ring.history("group", "g", "24h", end_ms).charts["messages"].values) == {7.0}
    ring.put("group", end_ms + 100 * STEP_MS, {"g": (9.0, math.nan, 9.0)})
    chart = ring.history("group", "g", "1h", end_ms + 100 * STEP_MS).charts["messages"]
    assert (chart.last, chart.most, len(chart.lines)) == (9.0, 9.0, 2)
    assert chart.values.count(None) == 49
    assert ring.history("group", "g", "1h", end_ms + 100 * STEP_MS).charts["bytes"].values[-1] is None
    much_later = end_ms + 3 * SAMPLES * STEP_MS
    assert set(ring.history("group", "g", "24h", much_later).charts["messages"].values) == {None}
    ring.put("group", much_later, {"g": (1.0, 1.0, 1.0)})
    assert (
        sum(value is not None for value in ring.history("group", "g", "24h", much_later).charts["seconds"].values) == 1
    )


def test_a_clock_that_goes_back_begins_again() -> None:
    """Samples of a future that did not come are forgotten."""
    ring = Ring(1)
    ring.put("group", NOW_MS + 10**9, {"g": (5.0, 5.0, 5.0)})
    ring.put("group", NOW_MS, {"g": (1.0, 1.0, 1.0)})
    assert ring.history("group", "g", "1h", NOW_MS).charts["messages"].most == 1.0


@pytest.mark.parametrize("span", ["15m", "1h", "6h", "24h"])
def test_charts_are_small_and_keep_peaks(span: str) -> None:
    """A span has at most 180 points, and a peak of a single sample is in it."""
    samples = [0.0] * (SPANS_MS[span] // STEP_MS)
    samples[len(samples) // 3] = 123_456.0
    chart = chart_of(samples)
    assert (len(chart.values) <= POINTS, chart.most, chart.last) == (True, 123_456.0, 0.0)
    assert sum(map(len, chart.lines)) < 3_000


def test_lines() -> None:
    """A line has the whole size, ends where nothing is known, and a value alone is seen."""
    assert line([0, None, 10.0]) == (
        f"0.0,{HEIGHT:.1f} 0.0,{HEIGHT:.1f}",
        f"{WIDTH:.1f},{GAP:.1f} {WIDTH:.1f},{GAP:.1f}",
    )
    assert line([0, 0]) == (f"0.0,{HEIGHT:.1f} {WIDTH:.1f},{HEIGHT:.1f}",)
    assert line([None, None]) == line([]) == ()


def test_nothing_is_remembered_without_places() -> None:
    """With 0 places and for an unknown span there is a history, which says so."""
    ring = Ring(0)
    ring.put("topic", NOW_MS, {"t": (1.0, 1.0)})
    found = ring.history("topic", "t", "<script>", NOW_MS)
    assert (found.span, found.is_remembered, found.since_ms) == ("15m", False, None)


def test_topics_by_growth() -> None:
    """The last rate of a topic is that of its chart; topics are sorted by it, the largest first, unknown rates last."""
    ring = Ring(3)
    ring.put("topic", NOW_MS, {"slow": (1.5, 0.0), "fast": (900.0, 0.0), "new": (math.nan, 0.0)})
    rates = ring.last("topic", "in_per_s", NOW_MS)
    assert rates == {"slow": 1.5, "fast": 900.0}
    assert ring.last("topic", "in_per_s", NOW_MS + 10 * STEP_MS) == {}
    topics = [Topic(name, 1, 1, True, True, False) for name in ("fast", "new", "other", "slow")]
    assert [topic.name for topic in shown_topics(topics, "", 1)[0]] == ["fast", "new", "other", "slow"]
    assert [topic.name for topic in shown_topics(topics, "", 1, rates=rates)[0]] == ["fast", "slow", "new", "other"]
    place = (4, 1, 1)
    page = topics_page(topics, {}, [], (), part="", has_system=False, place=place, rates=rates, sort="growth")
    assert [row.in_per_s for row in page.rows] == [900.0, None, None, 1.5]
    html = Renderer().page(page, path="/topics", twin="/topics.json", can_log_out=False)
    assert '<td class="n">900</td>' in html
    assert "those that grow fastest come first" in html
