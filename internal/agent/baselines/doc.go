// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baselines keeps what is usual with the pods of a node in a file, so that an agent that starts anew judges at once. It knows no
// rule, and not what the baselines mean.
package baselines
