// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpserver serves the agent's health, readiness, metrics and, on request, profiles over HTTP.
package httpserver
