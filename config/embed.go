// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config embeds the manifests of Crane for programs that install them without a checkout: the playground, the tests and the
// command line. It contains no code that applies them.
package config

import "embed"

// ImagePrefix precedes the names of Crane's images in the manifests. The domain invalid has no hosts, so that manifests without a registry of the
// user pull nothing.
const ImagePrefix = "registry.invalid/crane/"

// CRDs holds the custom resource definitions, one file for each kind, under crd/. hack/generate.sh writes them.
//
//go:embed crd/*.crane.io_*.yaml
var CRDs embed.FS

// Manifests holds everything that an installation applies: the CRDs, the namespace, the rights, the admission policies,
// the ConfigMap with the node-load policy, the workloads and Services of each binary, and the webhook configurations.
//
//go:embed crd/*.crane.io_*.yaml namespace.yaml rbac policy craned webhook crane-scheduler crane-agent metric-adapter nodeload/configmap.yaml
var Manifests embed.FS

// NodeLoad holds the node-load policies that Crane ships, and the recording rules that one of them needs.
//
//go:embed nodeload
var NodeLoad embed.FS

// Monitoring holds the rules of Prometheus on Crane itself, and the dashboards.
//
//go:embed monitoring
var Monitoring embed.FS

// Components holds kustomize components: what an installation may switch on beside the rest.
//
//go:embed components
var Components embed.FS
