// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webapi serves the read requests of gocrane's web API: recommendations, their rules, a page that compares a prediction
// with its history, and Prometheus queries. Routes and response format are gocrane's, so that existing clients keep working;
// unlike gocrane's, a client can only read what the API server permits.
//
// A route is an element of routes: path, required permission and handler. The package reads from caches and data sources and has
// no client that can write.
package webapi
