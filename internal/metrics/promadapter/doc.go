// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promadapter reads the configuration of prometheus-adapter and answers which PromQL a metric of an HPA is by it: rules
// (custom metrics), externalRules and resourceRules, with their names, their overrides of labels and their templates.
//
// It asks no server: a rule is found by the name of a metric alone. So a rule whose seriesQuery is a regular expression serves
// those metrics whose series follows from their name.
package promadapter
