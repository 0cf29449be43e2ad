// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"strings"
	"testing"

	"crane.io/crane/pkg/units"
)

func TestNodeGroup(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"crane.io/nodepool": "gpu", "karpenter.sh/nodepool": "x"}, "crane.io/nodepool=gpu"},
		{map[string]string{"karpenter.sh/nodepool": "x", "node.kubernetes.io/instance-type": "m5.large"}, "karpenter.sh/nodepool=x"},
		{map[string]string{"node.kubernetes.io/instance-type": "m5.large"}, "node.kubernetes.io/instance-type=m5.large"},
		{map[string]string{"crane.io/nodepool": ""}, "4 cores, 16.00Gi"},
		{nil, "4 cores, 16.00Gi"},
	} {
		if got := NodeGroup(NodeShape{Labels: c.labels, CPU: 4000, Memory: 16 << 30}); got != c.want {
			t.Errorf("%v: %q, want %q", c.labels, got, c.want)
		}
	}
}

func TestGroupNodesIsBounded(t *testing.T) {
	var nodes []NodeShape
	for i := range 40 {
		for n := range 41 - i {
			nodes = append(nodes, NodeShape{Name: fmt.Sprintf("n-%d-%d", i, n), PodCPU: units.MilliCPU(1000 + n), Labels: map[string]string{"crane.io/nodepool": fmt.Sprintf("p%02d", i)}})
		}
	}

	got := GroupNodes(nodes)
	if len(got.Groups) != maxNodeGroups || len(got.Of) != len(nodes) {
		t.Fatalf("GroupNodes = %d groups of %d nodes, want %d of %d", len(got.Groups), len(got.Of), maxNodeGroups, len(nodes))
	}

	if got.Of["n-0-0"] != "crane.io/nodepool=p00" || got.Of["n-39-0"] != otherNodes {
		t.Errorf("GroupNodes puts n-0-0 in %q and n-39-0 in %q, want its pool p00 and %q", got.Of["n-0-0"], got.Of["n-39-0"], otherNodes)
	}

	sum := 0
	for _, g := range got.Groups {
		sum += g.Nodes
	}

	if first := got.Groups[0]; sum != len(nodes) || first.Nodes != 41 || first.PodCPU != 1040 {
		t.Errorf("GroupNodes has %d nodes, the first group %+v; want %d, 41 of them in the first with 1040m", sum, first, len(nodes))
	}
}

// onNodes is a DaemonSet's container: for each group a number of days of constant use by one pod on each of its nodes.
func onNodes(groups ...groupDays) Input {
	in := Input{Container: "agent", Profile: NewProfile(), Now: start.Add(10 * day)}
	for _, g := range groups {
		use := NodeGroupUse{NodeGroupShape: NodeGroupShape{Name: g.name, Nodes: g.nodes, PodCPU: g.podCPU}, Profile: NewProfile()}
		for i := range g.nodes {
			s := minutes(g.days*1440, func(int) float64 { return g.cores })
			s.Start = in.Now.Add(-s.End().Sub(s.Start))
			m := minutes(g.days*1440, func(int) float64 { return g.bytes })
			m.Start = s.Start
			use.Profile.AddCPU(Usage{Pod: fmt.Sprint(g.name, i), Series: s})
			use.Profile.AddMemory(Usage{Pod: fmt.Sprint(g.name, i), Series: m})
		}

		in.Profile.Merge(use.Profile)
		in.Groups = append(in.Groups, use)
	}

	return in
}

type groupDays struct {
	name         string
	nodes, days  int
	cores, bytes float64
	podCPU       units.MilliCPU
}

func TestUnlikeNodes(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	small := groupDays{"small", 60, 10, 0.2, 5e8, 1000}

	// One pod of 61 is on a large node: the points of all pods together do not hold it, its group does.
	in := onNodes(small, groupDays{"big", 1, 10, 2, 4e9, 16000})
	r := Recommend(in, policy)
	checkRecommendation(t, r)

	if *r.Target.CPURequest < 2000 || *r.Target.MemoryRequest < 4e9 || len(r.NodeGroups) != 2 {
		t.Fatalf("Target %s of %d node groups, want 2 cores and 4e9 or more of 2 groups", jsonText(r.Target), len(r.NodeGroups))
	}

	if !strings.HasPrefix(r.CPU.Message, "the nodes of big rule") {
		t.Errorf("message %q, want the rule of the big nodes", r.CPU.Message)
	}
	if got := r.NodeGroups[0]; got.Group != "small" || got.Pods != 60 || *got.Target.CPURequest > 300 {
		t.Errorf("first group %s, want small with 60 pods and at most 300m", jsonText(got))
	}

	// 60 x (2.04 - 0.204) cores.
	finding := detail(r.CPU, string(FlagDissimilarNodes))
	for _, part := range []string{"small needs 204m (60 pods)", "big needs 2040m (1 pods)", "would ask for 110160m less"} {
		if !strings.Contains(finding, part) {
			t.Errorf("finding %q, want %q in it", finding, part)
		}
	}

	if finding := detail(r.CPU, string(FlagTooLarge)); !strings.Contains(finding, "2040m does not fit on the nodes of small (1)") {
		t.Errorf("finding %q, want that 2040m does not fit on the small nodes", finding)
	}

	evidence := CollectEvidence(in, policy)
	if request := evidence.CPU.Outcomes[0].Request; request < 2 {
		t.Errorf("CollectEvidence requests %v cores, want 2 or more, as with node groups", request)
	}
}

func TestAlikeNodes(t *testing.T) {
	r := Recommend(onNodes(groupDays{"a", 2, 10, 1, 1e9, 0}, groupDays{"b", 2, 10, 0.95, 1.02e9, 0}), mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if hasFlag(r.CPU, FlagDissimilarNodes) || *r.Target.MemoryRequest < 1.02e9 || *r.Target.CPURequest < 1000 || len(r.NodeGroups) != 2 {
		t.Errorf("alike nodes: Target %s, flags %v, %d groups; want 1.02e9 and 1 core or more of 2 groups without a finding", jsonText(r.Target), r.CPU.Flags, len(r.NodeGroups))
	}
}

func TestLearningNodeGroup(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	old := groupDays{"old", 60, 10, 1, 1e9, 0}
	greedy := Recommend(onNodes(old, groupDays{"new", 1, 2, 5, 5e8, 0}), policy)
	checkRecommendation(t, greedy)

	if greedy.CPU.Status != Learning || greedy.Target.CPURequest != nil || !strings.Contains(greedy.CPU.Message, "nodes of new: learning, 2 of 7 days") {
		t.Errorf("a learning group that already needs more: CPU %+v, want Learning without a request", greedy.CPU)
	}
	if greedy.Memory.Status != Ready {
		t.Errorf("a learning group that needs less memory: memory %+v, want Ready", greedy.Memory)
	}

	modest := Recommend(onNodes(old, groupDays{"new", 1, 2, 0.1, 1e8, 0}), policy)
	checkRecommendation(t, modest)

	if !modest.Ready() {
		t.Errorf("a learning group that needs less: %+v, want numbers for both resources", modest)
	}
}

func TestOneNodeGroup(t *testing.T) {
	in := onNodes(groupDays{"a", 3, 10, 1, 1e9, 0})
	in.Groups = append(in.Groups, NodeGroupUse{NodeGroupShape: NodeGroupShape{Name: "empty", Nodes: 2}})
	if r := Recommend(in, mustPolicy(t, DefaultPolicy)); len(r.NodeGroups) != 0 || !r.Ready() {
		t.Errorf("one group with usage: %+v, want numbers without node groups", r)
	}
}
