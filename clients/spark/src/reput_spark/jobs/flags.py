# SPDX-License-Identifier: Apache-2.0
"""The flags that jobs share, as the types of their parameters, and the end of their help."""

from enum import StrEnum
from typing import Annotated

import typer

from reput_spark.jobs.outcome import MEANINGS

EPILOG = (
    "Credentials are files named by REPUT_CLIENT_TOKEN_FILE, REPUT_CLIENT_CA_FILE, REPUT_CLIENT_CERTIFICATE_FILE and "
    f"REPUT_CLIENT_KEY_FILE. Exit codes: {'; '.join(f'{code} {meaning}' for code, meaning in MEANINGS.items())}."
)

FLAGS = {
    "subscribe": "--topic",
    "subscribePattern": "--topic-pattern",
    "startingTimestamp": "--start",
    "endingTimestamp": "--end",
    "keys": "--key",
    "maxOffsetsPerTrigger": "--rows-per-batch",
    "commitlog.endpoint": "--commitlog",
    "writerId": "--name",
}
"""The flags of options of the data source. Other options have a flag of the same name, or come from --option."""
SAME_NAME = ("endpoint", "tag", "topic")


class DateOf(StrEnum):
    """The time that gives the date in the paths of the output."""

    TIMESTAMP = "timestamp"
    BORN_TIMESTAMP = "born_timestamp"


Endpoint = Annotated[
    str,
    typer.Option(
        "--store",
        "--endpoint",
        metavar="HOST:PORT",
        envvar=["REPUT_CLIENT_INDEXER_TARGET", "REPUT_CLIENT_STORE_TARGET"],
        help="The store, by its gateway or its Indexer; several separated by commas.",
    ),
]
Topic = Annotated[str | None, typer.Option(help="Topics, separated by commas.")]
TopicPattern = Annotated[str | None, typer.Option(metavar="REGEX", help="Topics whose whole name matches.")]
Tag = Annotated[str | None, typer.Option(help="Only messages with one of these tags: A||B.")]
Start = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Earliest store time, inclusive: ISO-8601 with zone, or epoch milliseconds."),
]
End = Annotated[str | None, typer.Option(metavar="TIME", help="Latest store time, exclusive.")]
Date = Annotated[DateOf, typer.Option(help="Which time makes the date in the paths.")]
Other = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other option of the data source.")]
Master = Annotated[
    str | None, typer.Option(help="Spark master, when not given by spark-submit, such as local[4].", show_default=False)
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and write nothing; starts no Spark.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")]


def flag_of(option: str) -> str:
    """Return the flag of an option of the data source."""
    if option.startswith("--"):
        return option
    return FLAGS.get(option) or (f"--{option}" if option in SAME_NAME else f"--option {option}")
