// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package apiserver names the program that apiserver.sh builds.
package apiserver

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
