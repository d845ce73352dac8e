# SPDX-License-Identifier: Apache-2.0
"""The format inside a real Spark: registration, schema, projection, retries, the export job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark's own use of sockets and of deprecated calls is not ours to mend.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def spark(spark_process: SparkSession) -> SparkSession:
    """A session without registration: the installed package is found by its name."""
    session = spark_process.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def load(spark: SparkSession, indexer: Any, schema: str | None = None, **options: str) -> Any:
    """A DataFrame of the fake Indexer."""
    reader = spark.read.format("reput").options(endpoint=indexer.endpoint, subscribe="orders", retryIntervalMs="0")
    return (reader.schema(schema) if schema else reader).options(**options).load()


def test_reads_every_row_over_a_broken_stream(spark: SparkSession, indexer: Any) -> None:
    """All rows come once into Spark with the documented schema, although a stream breaks in the middle."""
    indexer.fill("orders", 2, 50)
    indexer.break_after = [3]
    frame = load(spark, indexer)
    assert frame.schema.simpleString() == (
        "struct<key:string,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,tag:string,properties:map<string,string>,born_timestamp:timestamp>"
    )
    rows = frame.collect()
    assert sorted((row.partition, row.offset) for row in rows) == [(queue, i) for queue in range(2) for i in range(50)]
    assert all(json.loads(bytes(row.value)) == [row.topic, row.partition, row.offset] for row in rows)
    assert rows[0].properties == {"KEYS": rows[0].key}
    assert {row.timestampType for row in rows} == {1}


def test_filters_of_spark_stay_in_spark(spark: SparkSession, indexer: Any) -> None:
    """A DataFrame that is filtered, then used whole, gives both answers right: nothing was pushed down."""
    indexer.fill("orders", 4, 100)
    frame = load(spark, indexer)
    assert frame.where("partition = 1 and key = 'k1'").count() == 20
    assert frame.count() == 400
    first, second = (frame.where(f"partition = {queue_id}").select("offset", "partition") for queue_id in (1, 2))
    assert sorted(first.union(second).groupBy("partition").count().collect()) == [(1, 100), (2, 100)]
    assert sorted(first.union(frame.select("offset", "partition")).groupBy("partition").count().collect()) == [
        (0, 100),
        (1, 200),
        (2, 100),
        (3, 100),
    ]
    joined = first.join(second.withColumnRenamed("partition", "other"), "offset")
    assert joined.groupBy("partition", "other").count().collect() == [(1, 2, 100)]
    frame.createOrReplaceTempView("pinned")
    assert spark.sql("SELECT count(*) FROM pinned WHERE partition = 1 OR partition = 3").first()[0] == 200
    assert spark.sql("SELECT count(*) FROM pinned").first()[0] == 400


def test_schema_of_the_user_and_empty_topics(spark: SparkSession, indexer: Any) -> None:
    """A schema is a projection. A topic without rows is an empty DataFrame. A wrong column is named at planning."""
    indexer.fill("orders", 1, 5)
    frame = load(spark, indexer, schema="offset bigint, physical_offset bigint, topic string")
    assert [tuple(row) for row in frame.collect()] == [(i, i * 100, "orders") for i in range(5)]
    indexer.made.add("nothing")
    assert load(spark, indexer, subscribe="nothing").count() == 0
    with pytest.raises(Exception, match="no column 'offsett'"):
        load(spark, indexer, schema="offsett bigint").count()
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        load(spark, indexer, startingOffset="earliest").count()


def test_sql_view_and_keys(spark: SparkSession, indexer: Any) -> None:
    """The format works from SQL, with keys as an option."""
    indexer.fill("orders", 2, 20)
    options = f"endpoint '{indexer.endpoint}', subscribe 'orders', key 'k2'"
    spark.sql(f"CREATE TEMPORARY VIEW orders USING reput OPTIONS ({options})")
    assert spark.sql("SELECT count(*), min(key), max(key) FROM orders").first() == (8, "k2", "k2")


def test_a_frame_without_the_data_source_api(spark: SparkSession, indexer: Any) -> None:
    """The read for clusters of Spark 3 gives the same rows, with a task for each partition."""
    pytest.importorskip("pandas", reason="mapInArrow needs pandas")
    from reput_spark.read.frames import read_frame
    from reput_spark.read.options import parse

    indexer.fill("orders", 3, 20)
    options = {"endpoint": indexer.endpoint, "subscribe": "orders"}
    frame = read_frame(spark, parse(options))
    assert frame.schema == load(spark, indexer).schema
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(frame.collect()) == sorted(load(spark, indexer).collect())
    slim = read_frame(spark, parse(options | {"columns": "offset,tag", "tag": "even"}))
    assert slim.groupBy("tag").count().collect() == [("even", 30)]
    indexer.made.add("nothing")
    assert read_frame(spark, parse(options | {"subscribe": "nothing"})).count() == 0


def test_export_writes_parquet_by_topic_and_date(spark: SparkSession, indexer: Any, tmp_path: Path) -> None:
    """The export has the selected rows, in directories by topic and date, and returns the number of rows."""
    from pyspark.errors import PySparkException
    from reput_spark.jobs.export import export
    from reput_spark.jobs.outcome import failures, first_cause

    indexer.fill("orders", 2, 20)
    options = {"endpoint": indexer.endpoint, "subscribe": "orders", "tag": "even"}
    exported = export(spark, options, str(tmp_path / "lake"))
    assert exported.row_count == 20
    assert exported.body_size_bytes == sum(len(row["value"]) for rows in indexer.queues.values() for row in rows[::2])
    assert (tmp_path / "lake" / "topic=orders" / "date=2023-11-14").is_dir()
    back = spark.read.parquet(str(tmp_path / "lake"))
    assert {bytes(row.value) for row in back.collect()} == {
        row["value"] for rows in indexer.queues.values() for row in rows[::2]
    }
    with pytest.raises(PySparkException) as caught:
        export(spark, options, str(tmp_path / "lake"))
    assert "PATH_ALREADY_EXISTS" in first_cause(caught.value)
    assert isinstance(caught.value, failures())
    indexer.made.add("nothing")
    nothing = export(spark, options | {"subscribe": "nothing"}, str(tmp_path / "empty"))
    assert (nothing.row_count, nothing.body_size_bytes) == (0, 0)


def test_export_command(indexer: Any, tmp_path: Path) -> None:
    """The job runs through spark-submit, and its last line is the outcome."""
    import pyspark
    from reput_spark.jobs import export

    indexer.fill("orders", 1, 10)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    job = [export.__file__, "--endpoint", indexer.endpoint, "--topic", "orders", "--key", "k1", "--json"]
    run = subprocess.run(
        [submit, "--master", "local[1]", *job, "--output", str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert json.loads(run.stdout.splitlines()[-1])["row_count"] == 2
