// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pluginconfig holds the arguments of Crane's scheduler plugins, as they stand under pluginConfig of a
// KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): types, defaults, validation and their registration in a
// scheme. It must not know of the plugins, nor link k8s.io/kubernetes: the schemes of the scheduler are handed to it.
package pluginconfig
