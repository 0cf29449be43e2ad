// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oom

import "regexp"

// Names of pods that Kubernetes derives from their workloads.
var (
	ofDeployment  = regexp.MustCompile(`^(.+)-[a-z0-9]{1,10}-[a-z0-9]{5}$`)
	ofStatefulSet = regexp.MustCompile(`^(.+)-[0-9]+$`)
	ofDaemonSet   = regexp.MustCompile(`^(.+)-[a-z0-9]{5}$`)
)

// Owners returns the workloads that a kill may belong to: the recorded one or, for records of gocrane without one, those
// whose pods have such names.
func (k Kill) Owners() []Owner {
	if k.Owner.Kind != "" {
		return []Owner{k.Owner}
	}
	out := []Owner{{APIVersion: "v1", Kind: "Pod", Name: k.Pod}}
	for _, rule := range []struct {
		kind string
		form *regexp.Regexp
	}{{"Deployment", ofDeployment}, {"StatefulSet", ofStatefulSet}, {"DaemonSet", ofDaemonSet}} {
		if m := rule.form.FindStringSubmatch(k.Pod); m != nil {
			out = append(out, Owner{APIVersion: "apps/v1", Kind: rule.kind, Name: m[1]})
		}
	}
	return out
}
