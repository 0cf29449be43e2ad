// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package craned assembles the controller manager: flags, defaults and validation, data sources, health checks, and
// controller-runtime's manager. The controllers themselves are in the packages of their subject.
package craned
