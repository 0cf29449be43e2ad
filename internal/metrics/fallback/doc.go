// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fallback asks data sources in order: the first that can answer serves. What a source can answer is told by
// the interfaces of package metrics that it has, so that sources of history and sources of the present stand in one list
// and neither is asked what only the other knows.
//
// A source that fails is told in the log and in a metric, and rests for a while: others are asked before it. Where it is
// the only one that can answer it is asked all the same. An error that is the question's own fault ends the asking, and
// so does a failure in the midst of an answer: whoever asked has half of it already.
package fallback
