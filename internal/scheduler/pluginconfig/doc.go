// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pluginconfig defines the arguments of Crane's scheduler plugins under pluginConfig of a
// KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): types, defaults, validation and registration in a
// scheme. It does not depend on the plugins and does not link k8s.io/kubernetes.
package pluginconfig
