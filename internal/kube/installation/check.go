// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Status is the status of a check.
type Status string

// The statuses: everything is as it should be, works with a limit, or is absent.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Missing Status = "missing"
)

// Check is the result of one check.
type Check struct {
	Name   string `json:"check"`
	Status Status `json:"status"`
	// Detail describes the finding.
	Detail string `json:"detail"`
	// Advice is the recommended action, empty if none is needed.
	Advice string `json:"advice,omitempty"`
}

// Off marks a component that is not installed.
const Off Status = "off"

// CranedSelector is the label of craned's Deployment in config/craned.
const CranedSelector = "app.kubernetes.io/name=craned"

// CranedLease is the leader lease of craned; MaxLeaseAge is the maximum age of its renewal.
const (
	CranedLease = "craned"
	MaxLeaseAge = time.Minute
)

// DefaultNamespace is the namespace of Crane unless its users choose another one.
const DefaultNamespace = "crane-system"

// Renewed reports whether a lease has a holder who renewed it within MaxLeaseAge.
func Renewed(lease *coordinationv1.Lease, now time.Time) bool {
	spec := &lease.Spec
	return spec.RenewTime != nil && spec.HolderIdentity != nil && *spec.HolderIdentity != "" && now.Sub(spec.RenewTime.Time) < MaxLeaseAge
}
