#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Kubernetes' own API server, built through the Go module proxy, for the tests that elect by a Lease. They start it on etcd
# (Debian: etcd-server); nothing else of Kubernetes is needed.
#
#   apiserver.sh [FOLDER]    default: $REPUT_DEPLOY_TOOLS, or reput-deploy-tools below $TMPDIR or /tmp
#
# FOLDER/bin then holds kube-apiserver. Takes Go 1.26 and some minutes of a processor, once. `apiserver/go.mod` names the
# release; Kubernetes' own go.mod points at folders of its repository, so each of them is replaced by what was published.
set -eu

folder=${1:-${REPUT_DEPLOY_TOOLS:-${TMPDIR:-/tmp}/reput-deploy-tools}}
mkdir -p "$folder/bin"
folder=$(cd "$folder" && pwd)
[ -x "$folder/bin/kube-apiserver" ] || {
    cd "$(dirname "$0")/apiserver"
    release=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
    minor=${release#v1.}
    told=k8s.io/component-base/version # what it says of itself; charts ask for it
    GOFLAGS=-buildvcs=false go build -trimpath -o "$folder/bin/kube-apiserver.part" \
        -ldflags="-s -w -X $told.gitVersion=$release -X $told.gitMajor=1 -X $told.gitMinor=${minor%%.*}" k8s.io/kubernetes/cmd/kube-apiserver
    mv "$folder/bin/kube-apiserver.part" "$folder/bin/kube-apiserver"
}
echo "$folder/bin/kube-apiserver"
