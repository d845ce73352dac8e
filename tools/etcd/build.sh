#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds etcd for the tests of elections through the Go module proxy, if the machine has none: a minute of a processor, once.
#
#   build.sh FILE    FILE is the binary afterwards, unless etcd is on PATH, or there is no Go
set -eu

! command -v etcd >/dev/null || exit 0
command -v go >/dev/null || {
    echo "neither etcd (Debian: etcd-server) nor Go is on PATH: tests of elections are skipped" >&2
    exit 0
}
echo "building etcd for the tests of elections"
mkdir -p "$(dirname "$1")"
file=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")"
GOFLAGS=-buildvcs=false go build -trimpath -ldflags="-s -w" -o "$file.part" . || {
    echo "etcd can't be built: tests of elections are skipped" >&2
    exit 0
}
mv "$file.part" "$file"
