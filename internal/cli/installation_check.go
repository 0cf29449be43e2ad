// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"time"
)

// status is the status of a check.
type status string

const (
	statusOK      status = "ok"
	statusWarn    status = "warn"
	statusMissing status = "missing"
)

// check is the result of one check.
type check struct {
	Name   string `json:"check"`
	Status status `json:"status"`
	// Detail describes the finding.
	Detail string `json:"detail"`
	// Advice is the recommended action, empty if none is needed.
	Advice string `json:"advice,omitempty"`
}

// statusOff marks a component that is not installed.
const statusOff status = "off"

// cranedSelector is the label of craned's Deployment in config/craned.
const cranedSelector = "app.kubernetes.io/name=craned"

// cranedLease is the leader lease of craned; maxLeaseAge is the maximum age of its renewal.
const (
	cranedLease = "craned"
	maxLeaseAge = time.Minute
)

// shortDuration formats 1m0s as 1m.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}
