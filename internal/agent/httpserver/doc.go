// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpserver is the agent's HTTP: health, readiness, metrics, and profiles where they are asked for. What is healthy and what is
// measured others say.
package httpserver
