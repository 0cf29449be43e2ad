// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginconfig

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/pkg/nodeload"
)

// ValidateDynamicArgs validates a after defaulting. Paths start at args.
func ValidateDynamicArgs(a *DynamicArgs) field.ErrorList {
	var errs field.ErrorList
	args := field.NewPath("args")
	if !filepath.IsAbs(a.PolicyConfigPath) {
		errs = append(errs, field.Invalid(args.Child("policyConfigPath"), a.PolicyConfigPath, "must be an absolute path"))
	}
	// Local would mean another time on every machine.
	if _, err := time.LoadLocation(a.TimeZone); err != nil || a.TimeZone == "Local" {
		errs = append(errs, field.Invalid(args.Child("timeZone"), a.TimeZone, "must be the IANA name of a time zone that this machine knows, such as UTC or Asia/Shanghai"))
	}

	switch s := nodeload.StrategyName(a.Strategy); s {
	case nodeload.Spread, nodeload.Pack, nodeload.Risk:
	default:
		errs = append(errs, field.NotSupported(args.Child("strategy"), s, []nodeload.StrategyName{nodeload.Spread, nodeload.Pack, nodeload.Risk}))
	}

	errs = append(errs, validateRange(args.Child("packTargetPercent"), a.PackTargetPercent, 99)...)
	errs = append(errs, validateRange(args.Child("riskMarginPercent"), a.RiskMarginPercent, 1000)...)
	errs = append(errs, validateRange(args.Child("minFreshPercent"), a.MinFreshPercent, 100)...)
	errs = append(errs, validateExplainAddress(args.Child("explainAddress"), a.ExplainAddress)...)
	switch a.History {
	case HistoryRecommendations, HistoryNone:
	default:
		errs = append(errs, field.NotSupported(args.Child("history"), a.History, []string{HistoryRecommendations, HistoryNone}))
	}

	return errs
}

func validateRange(path *field.Path, value, highest int32) field.ErrorList {
	if 1 <= value && value <= highest {
		return nil
	}

	return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be from 1 to %d", highest))}
}

// validateExplainAddress accepts loopback addresses only: the endpoint shows pods and has no authentication.
func validateExplainAddress(path *field.Path, address string) field.ErrorList {
	if address == ExplainNone {
		return nil
	}

	if addrPort, err := netip.ParseAddrPort(address); err == nil && addrPort.Addr().IsLoopback() {
		return nil
	}

	return field.ErrorList{field.Invalid(path, address, "must be a loopback address with a port, such as "+DefaultExplainAddress+", or none")}
}

// ValidateNodeResourceTopologyMatchArgs validates a after defaulting. Paths start at args.
func ValidateNodeResourceTopologyMatchArgs(a *NodeResourceTopologyMatchArgs) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, name := range a.TopologyAwareResources {
		path := field.NewPath("args", "topologyAwareResources").Index(i)
		for _, why := range validation.IsQualifiedName(name) {
			errs = append(errs, field.Invalid(path, name, why))
		}

		if seen[name] {
			errs = append(errs, field.Duplicate(path, name))
		}
		seen[name] = true
	}

	switch a.MissingTopology {
	case MissingTopologyPass, MissingTopologyReject:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("args", "missingTopology"), a.MissingTopology,
			[]MissingTopology{MissingTopologyPass, MissingTopologyReject}))
	}

	return errs
}
