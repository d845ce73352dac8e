# SPDX-License-Identifier: Apache-2.0
"""Tables and fields as text. A number is never broken: values that do not fit are written below, or line by line.

A long name has a line of its own in its row, so that a single long name does not change the table of all other rows.

The name of a value selects its form, as names end with their units: `_bytes` is a size, `_time` a moment, `_ms`
and `_s` a duration, `_per_s` a rate, `_percent` a share. The JSON of the same rows has the values as they are.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from cli.output.lines import note_line, print_json, printable, styled, write
from cli.output.moments import parse_time, short_text
from cli.output.wrapping import beside, folded, text_width, wrapped
from libs.figures import duration_text, size_text

GAP = "  "
PROSE_INDENT = "    "
NAME_WIDTH_MIN = 16
"""Least width of a column of names when longer names have lines of their own. No time is longer."""
WITHOUT_LIMIT = sys.maxsize
"""Width if standard output is no terminal: nothing is rearranged for a program."""
UNITS_IN_VALUES = ("_bytes", "_percent", "_ms", "_s")
PER_SECOND = "_per_s"
RATE_ROUND_FROM = 10
"""From here on a rate has no decimal place."""

Row = Mapping[str, object]


def output_width() -> int:
    """Return the number of columns of standard output."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WITHOUT_LIMIT


def print_rows(
    rows: Iterable[Row], columns: Sequence[str], *, as_json: bool, prose: str = "", spare: Sequence[str] = ()
) -> None:
    """Print a list: JSON lines with all keys, or a table of the named columns.

    If the table is too wide for the terminal, columns of `spare` are left out, from the first on, and the column
    `prose`, a sentence, is written below its row. At a terminal a note says that a table is empty.
    """
    if as_json:
        for row in rows:
            print_json(row)
        return
    listed = list(rows)
    for line in table_lines(listed, columns, output_width(), prose=prose, spare=spare):
        write(f"{line}\n")
    if not listed:
        note_line("there is none")


def print_fields(fields: Row, *, as_json: bool) -> None:
    """Print a single result: a JSON object, or a line per field, and lists of rows as tables below."""
    if as_json:
        print_json(fields)
        return
    lines = {title_of(name): cell(name, value) for name, value in _flat("", fields) if not _is_list_of_rows(value)}
    title_width = max(map(len, lines), default=0) + len(GAP)
    for title, text in lines.items():
        write("".join(f"{line}\n" for line in beside(title, title_width, text, output_width())))
    for name, value in _flat("", fields):
        if _is_list_of_rows(value):
            assert isinstance(value, list)
            write(f"{title_of(name)}\n")
            print_rows(value, tuple(value[0]), as_json=False)


def table_lines(
    rows: Sequence[Row], columns: Sequence[str], width: int, *, prose: str = "", spare: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table that is at most `width` wide, if that can be without breaking a value.

    It tries a line of titles, then titles over several lines, then fewer columns, then the prose below each row, then
    the same with long names in lines of their own, then records.
    """
    texts = [{name: cell(name, row.get(name)) for name in columns} for row in rows]
    numeric = {name for name in columns if all(_is_number(row.get(name)) for row in rows)}
    for has_steps in (False, True):
        for names, titles in _arrangements(columns, prose, spare):
            if has_steps and prose in names:
                continue
            least = {name: max(map(text_width, titles[name])) for name in names}
            widths = {name: max([least[name], *(text_width(text[name]) for text in texts)]) for name in names}
            room = width - len(GAP) * (len(names) - 1)
            if has_steps:
                long = {name for name in names if name not in numeric and not name.endswith("id")}
                widths = _narrowed(widths, {name: least[name] for name in long}, room)
            if sum(widths.values()) <= room:
                yield from _titles(titles, widths, numeric)
                for text in texts:
                    yield from _row(text, widths, numeric, width)
                    if prose and prose not in names and text[prose]:
                        yield from wrapped(text[prose], width, first=PROSE_INDENT, indent=PROSE_INDENT)
                return
    yield from _records(texts, columns, width)


def _narrowed(widths: Mapping[str, int], least: Mapping[str, int], room: int) -> dict[str, int]:
    """Return widths with which a table fits: the widths of long names, the keys of `least`, are lowered alike."""
    limit = max(widths.values(), default=0)
    while True:
        found = {
            name: min(size, max(limit, least[name], NAME_WIDTH_MIN)) if name in least else size
            for name, size in widths.items()
        }
        excess = sum(found.values()) - room
        if excess <= 0 or limit <= NAME_WIDTH_MIN:
            return found
        limit = max(limit - max(excess // len(found), 1), NAME_WIDTH_MIN)


def _row(text: Mapping[str, str], widths: Mapping[str, int], numeric: set[str], width: int) -> Iterator[str]:
    """Yield a row. A value that is too long for its column ends its line, and begins further left if it has to."""
    line, at = "", 0
    for name, size in widths.items():
        value = text[name]
        line += " " * (at - text_width(line))
        if text_width(value) <= size:
            line += _padded(value, size, is_right=name in numeric)
        else:
            if at + text_width(value) > width:
                if line.strip():
                    yield line.rstrip()
                line = " " * max(width - text_width(value), 0)
            *full, last = folded(value, width - text_width(line))
            yield from full
            yield line + last
            line = ""
        at += size + len(GAP)
    if line.strip() or not any(text.values()):
        yield line.rstrip()


def _arrangements(
    columns: Sequence[str], prose: str, spare: Sequence[str]
) -> Iterator[tuple[Sequence[str], dict[str, list[str]]]]:
    """Yield column names, and the lines of their titles, from the widest arrangement to the narrowest."""
    flat = {name: [title_of(name)] for name in columns}
    stacked = {name: title_of(name).split() or [""] for name in columns}
    yield columns, flat
    names = list(columns)
    for left_out in ("", *spare):
        names = [name for name in names if name != left_out]
        yield names, {name: stacked[name] for name in names}
    if prose:
        names = [name for name in names if name != prose]
        yield names, {name: flat[name] for name in names}
        yield names, {name: stacked[name] for name in names}


def _titles(titles: Mapping[str, list[str]], widths: Mapping[str, int], numeric: set[str]) -> Iterator[str]:
    height = max(map(len, titles.values()), default=0)
    for number in range(height):
        pieces = []
        for name, lines in titles.items():
            at = number - (height - len(lines))
            pieces.append(_padded(lines[at] if at >= 0 else "", widths[name], is_right=name in numeric))
        yield styled(_line(pieces), bold=True)


def _records(texts: Sequence[Mapping[str, str]], columns: Sequence[str], width: int) -> Iterator[str]:
    """Yield each row line by line, with an empty line between rows."""
    title_width = max((len(title_of(name)) for name in columns), default=0) + len(GAP)
    for number, text in enumerate(texts):
        if number:
            yield ""
        for name in columns:
            yield from beside(title_of(name), title_width, text[name], width)


def title_of(name: str) -> str:
    """Return a column's title: its name without the unit that its values have themselves."""
    limit = "_max" if name.endswith("_max") else ""
    name = name.removesuffix(limit)
    units = () if name.endswith(PER_SECOND) else UNITS_IN_VALUES
    unit = next((unit for unit in units if name.endswith(unit) and name != unit), "")
    return f"{name.removesuffix(unit)}{limit}".replace(PER_SECOND, "/s").replace("_", " ")


def cell(name: str, value: object) -> str:
    """Return a value as readable text, in a single line, by its name."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(cell(name, item) for item in value)
    if isinstance(value, int | float):
        return _figure(name, value)
    if name.endswith("time") and isinstance(value, str) and value.endswith("Z"):
        return short_text(parse_time(value))
    if isinstance(value, datetime):
        return short_text(round(value.timestamp() * 1000))
    return printable(str(value))


def _figure(name: str, value: float) -> str:
    name = name.removesuffix("_max")
    if name.endswith("_bytes"):
        return size_text(value)
    if name.endswith("_time_ms"):
        return short_text(round(value))
    if name.endswith("_ms"):
        return duration_text(value / 1000)
    if name.endswith(PER_SECOND):
        return f"{value:,.1f}" if 0 < value < RATE_ROUND_FROM else f"{value:,.0f}"
    if name.endswith("_s"):
        return duration_text(value)
    if name.endswith("_percent"):
        return f"{value} %"
    if name.endswith("_count") or name == "lag":
        return f"{value:,}"
    return str(value)


def _padded(text: str, width: int, *, is_right: bool) -> str:
    space = " " * (width - text_width(text))
    return space + text if is_right else text + space


def _line(pieces: Sequence[str]) -> str:
    return GAP.join(pieces).rstrip()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_list_of_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _flat(prefix: str, fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield fields within fields, under both names."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name} ", value)
        else:
            yield f"{prefix}{name}", value
