// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promadapter reads the configuration of prometheus-adapter (rules, externalRules and resourceRules with their name mappings, label
// overrides and templates) and returns the PromQL of a metric of an HPA.
//
// It sends no requests. The metric adapter passes it a Listing of the series on the server. Without a listing, the series of a rule whose
// seriesQuery is a pattern is derived from the name of the metric.
package promadapter
