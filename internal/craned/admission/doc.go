// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission serves Crane's admission webhooks: it turns requests of the API server into the questions that package kinds
// and the mutators of pods answer. It decides nothing itself, and keeps nothing but what the answers need of the cluster.
package admission
