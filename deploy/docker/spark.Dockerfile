# SPDX-License-Identifier: Apache-2.0
#
# Apache Spark's own image with the connector, for drivers and executors on Kubernetes. Build it from the repository's root:
#
#   docker build -f deploy/docker/spark.Dockerfile -t spark-reput:4.3.0 .
#
# The image's Python must be 3.11 or newer. Jobs are in /opt/reput/jobs.

ARG SPARK_IMAGE=apache/spark:4.3.0-python3
# hadolint ignore=DL3006
FROM ${SPARK_IMAGE}
USER 0
COPY protos/python /tmp/reput/protos
COPY clients/python /tmp/reput/client
COPY clients/spark /tmp/reput/spark
# hadolint ignore=DL3013,DL3042
RUN python3 -m pip install --no-cache-dir --break-system-packages /tmp/reput/protos /tmp/reput/client /tmp/reput/spark \
    && mkdir -p /opt/reput && cp -r /tmp/reput/spark/src/reput_spark/jobs /opt/reput/jobs && rm -rf /tmp/reput
USER 185
ENV PYSPARK_PYTHON=python3
