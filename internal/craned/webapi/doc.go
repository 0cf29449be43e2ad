// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webapi is the read side of gocrane's web API: recommendations, their rules, a page that shows a prediction beside
// what came true, and queries of Prometheus. Its routes and the form of its answers are gocrane's, so that tools of its users
// go on; unlike gocrane's, nobody reads what the API server would not let them read.
//
// A route is a line in routes: its path, what it takes to be let in, and what it answers. Those that write, and the
// dashboard's, will be lines there too, with permissions of their own. What is read comes from caches and data sources that
// are given; this package knows no client that could write.
package webapi
