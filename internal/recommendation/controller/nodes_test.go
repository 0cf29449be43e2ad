// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// TestStatusOfUnlikeNodes checks that each container has one value, and that the description has the need of each group of nodes, the
// decisive group, and the saving of one DaemonSet for each.
func TestStatusOfUnlikeNodes(t *testing.T) {
	now := time.Date(2026, 3, 12, 0, 0, 0, 0, time.UTC)
	all := rightsize.NewProfile()
	var groups []rightsize.NodeGroupUse
	for name, cores := range map[string]float64{"pool=small": 0.2, "pool=large": 2} {
		g := rightsize.NodeGroupUse{NodeGroupShape: rightsize.NodeGroupShape{Name: name, Nodes: 2}, Profile: rightsize.NewProfile()}
		for i := range 2 {
			s := series.Series{Start: now.AddDate(0, 0, -10), Step: time.Hour, Values: make([]float64, 240)}
			fill := func(v float64) rightsize.Usage {
				for k := range s.Values {
					s.Values[k] = v
				}

				return rightsize.Usage{Pod: fmt.Sprint(name, i), Series: s}
			}

			g.Profile.AddCPU(fill(cores))
			g.Profile.AddMemory(fill(cores * 1e9))
		}

		all.Merge(g.Profile)
		groups = append(groups, g)
	}

	policy, err := rightsize.PolicyByName(rightsize.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}

	plan := resource.Decide(resource.Input{
		Now: now, Policy: policy, PolicyWhy: "policy default by rule 1 of the policy file",
		Containers: []resource.Container{{Name: "agent", Profile: all, Groups: groups}},
	})

	content, err := decision{}.withResources(workload.Workload{
		Ref:        workload.Ref{Namespace: "ops", APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"},
		Containers: []workload.Container{{Name: "agent", Role: workload.App}},
	}, plan)
	if err != nil {
		t.Fatal(err)
	}

	if n := strings.Count(content.value, "containerName"); n != 1 || !strings.Contains(content.value, "cpu: 2040m") {
		t.Errorf("%d containers in %s, want 1 with cpu 2040m", n, content.value)
	}

	for _, part := range []string{
		"one template serves unlike nodes with 2040m", "pool=small needs 204m (2 pods)", "pool=large needs 2040m (2 pods)",
		"a DaemonSet for each group would ask for 3672m less", "Sized with policy default by rule 1",
	} {
		if !strings.Contains(plan.Description, part) {
			t.Errorf("description %q, want one with %q", plan.Description, part)
		}
	}
}
