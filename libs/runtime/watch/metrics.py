# SPDX-License-Identifier: Apache-2.0
"""Metrics: the families of a service's metrics, from the fields of structs and dataclasses.

A field gives the name, the type and the unit of its family:

    field                    family                       type      value
    appended_messages_total  …_appended_messages_total    counter   as it is
    segment_count            …_segments                   gauge     as it is
    late_ms_total            …_late_seconds_total         counter   ÷ 1,000
    disk_used_percent        …_disk_used_ratio            gauge     ÷ 100

The sentence under the field is the family's help. Prometheus' conventions are the source: base units, no count of a
gauge at the end of its name.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from prometheus_client import Metric

_log = logging.getLogger(__name__)

Kind: TypeAlias = "type[DataclassInstance | Struct]"
"""The class of statistics: a struct, or a dataclass whose fields have metadata."""
Read = Callable[[], Mapping[tuple[str, ...], Any]]
"""Returns objects by the values of their labels. Quick, from any thread, and without need of the event loop."""

TOTAL = "_total"
NAME = "metric"
"""The key in the metadata of a field whose family has another name than the field."""
FORMER = "former"
"""The same for the family's name of releases before the base units."""
_UNITS = (("_ms", "_seconds", 1e-3), ("_percent", "_ratio", 1e-2), ("_count", "s", 1.0))
"""The end of a field's name, the end of its family's name, and the factor of its values."""


class Column(Struct, frozen=True):
    """A field of the objects of a reader, as a family of metrics."""

    field: str
    name: str
    old_name: str
    """The name of releases before the base units; its values are as the field's."""
    help: str
    factor: float

    @property
    def is_counter(self) -> bool:
        """Whether the values only grow, from the start of the process."""
        return self.name.endswith(TOTAL)

    def family(self, labels: Sequence[str], found: Mapping[tuple[str, ...], Any]) -> "Metric":
        """Return the family with a sample for each object."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        made = (
            CounterMetricFamily(self.name.removesuffix(TOTAL), self.help, labels=labels)
            if self.is_counter
            else GaugeMetricFamily(self.name, self.help, labels=labels)
        )
        for values, statistics in found.items():
            made.add_metric(values, float(getattr(statistics, self.field)) * self.factor)
        return made

    @property
    def former(self) -> "Column":
        """The family under its old name."""
        return replace(self, name=self.old_name, help=f"Old name of {self.name}.", factor=1.0)


@functools.cache
def columns(prefix: str, kind: Kind) -> tuple[Column, ...]:
    """Return the families of a kind of statistics. Raises ValueError for a field without a sentence.

    The first call parses the source of the class: this takes milliseconds.
    """
    from libs.runtime.sentences import field_sentences

    sentences = field_sentences(kind)
    made = []
    for field, named in _fields(kind):
        if field not in sentences:
            raise ValueError(f"{kind.__qualname__}.{field}: a metric needs a sentence under the field")
        name, factor = _family_name(named.get(NAME, field))
        made.append(
            Column(
                field,
                f"{prefix}_{name}",
                f"{prefix}_{named.get(FORMER, field)}",
                sentences[field],
                factor,
            )
        )
    return tuple(made)


def _fields(kind: Kind) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the names of the fields, and the other names that their metadata give."""
    if dataclasses.is_dataclass(kind):
        yield from ((field.name, field.metadata) for field in dataclasses.fields(kind))
    else:
        yield from ((name, {}) for name in kind.__struct_fields__)


def _family_name(field: str) -> tuple[str, float]:
    """Return the end of a family's name for a field, and the factor of its values."""
    stem, total = field.removesuffix(TOTAL), TOTAL if field.endswith(TOTAL) else ""
    for end, unit, factor in _UNITS:
        if stem.endswith(end):
            return stem.removesuffix(end) + unit + total, factor
    return field, 1.0


class Metrics:
    """The families of a service. `add` statistics at the start; each collection reads all of them once.

    The names and help of the families are made by the first collection: a start does not wait for them.

    Statistics that fail are left out of a collection, and the log says why: they must not hide all other metrics.
    """

    def __init__(self, *, has_old_names: bool) -> None:
        self._has_old_names = has_old_names
        self._sources: list[tuple[str, Sequence[str], Kind, Read]] = []

    def add(self, prefix: str, labels: Sequence[str], kind: Kind, read: Read) -> None:
        """Add the families of a kind of statistics. `read` is called once for each collection."""
        self._sources.append((prefix, labels, kind, read))

    def collect(self) -> "Iterator[Metric]":
        """Yield all families, also families without samples. Callers: any thread."""
        for prefix, labels, kind, read in self._sources:
            families = self._families(prefix, kind)
            try:
                found = read()
            except Exception:  # noqa: BLE001 - the other families are still needed
                _log.exception("no metrics of %s", families[0].name)
                found = {}
            for column in families:
                yield column.family(labels, found)

    def _families(self, prefix: str, kind: Kind) -> Sequence[Column]:
        families = columns(prefix, kind)
        if not self._has_old_names:
            return families
        return families + tuple(family.former for family in families if family.old_name != family.name)
