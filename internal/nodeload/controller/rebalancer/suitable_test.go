// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/kube/eviction"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/pkg/nodeload"
)

// newPod returns a running pod of a ReplicaSet that requests a core.
func newPod(change func(*corev1.Pod)) *corev1.Pod {
	yes := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "web-1", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: &yes}},
		},
		Spec: corev1.PodSpec{SchedulerName: "crane-scheduler", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}

	if change != nil {
		change(p)
	}

	return p
}

func TestBlockReason(t *testing.T) {
	volume := func(v corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{VolumeSource: v}} }
	}
	owner := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.OwnerReferences[0].Kind = kind }
	}

	empty := volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	critical := int32(2_000_000_000)
	excluded := optout.Set{}
	excluded.AddNamespace("quiet")
	excluded.Add(optout.Workload{Kind: "Deployment", Namespace: "shop", Name: "calm"})

	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		others int
		want   string
	}{
		"may":                 {nil, 1, ""},
		"the only one":        {nil, 0, "no other pod"},
		"no controller":       {func(p *corev1.Pod) { p.OwnerReferences = nil }, 1, "no controller"},
		"DaemonSet":           {owner("DaemonSet"), 1, "DaemonSet"},
		"static":              {owner("Node"), 1, "Node"},
		"Job":                 {owner("Job"), 1, "Job"},
		"pending":             {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, 1, "does not run"},
		"going":               {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, 1, "being deleted"},
		"protected":           {func(p *corev1.Pod) { p.Namespace = "kube-system" }, 1, "protected"},
		"opted out":           {func(p *corev1.Pod) { p.Labels["crane.io/opt-out"] = "true" }, 1, "opted out"},
		"opted out namespace": {func(p *corev1.Pod) { p.Namespace = "quiet" }, 1, "opted out"},
		"opted out workload": {func(p *corev1.Pod) {
			p.Labels["pod-template-hash"] = "5f"
			p.OwnerReferences[0].Name = "calm-5f"
		}, 1, "opted out"},
		"critical":    {func(p *corev1.Pod) { p.Spec.Priority = &critical }, 1, "critical"},
		"by requests": {func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" }, 1, "default-scheduler does not read load"},
		"says no":     {func(p *corev1.Pod) { p.Annotations[eviction.SafeToEvict] = "false" }, 1, "is false"},
		"emptyDir":    {empty, 1, "emptyDir"},
		"emptyDir and says yes": {func(p *corev1.Pod) {
			empty(p)
			p.Annotations[eviction.SafeToEvict] = "true"
		}, 1, ""},
		"volume":   {volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), 1, "persistent volume"},
		"hostPath": {volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), 1, "files of its node"},
		"hostPort": {func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }, 1, "ports of its node"},
		"spread": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
		}, 1, "spread"},
		"affinity": {func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{}}}}
		}, 1, "pod affinity"},
		"claims": {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{}} }, 1, "resource claims"},
	} {
		got := blockReason(newPod(test.change), DefaultSettings().Schedulers, func(ns string) bool { return ns == "kube-system" }, excluded.Excludes, test.others)
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: blockReason = %q, want %q", name, got, test.want)
		}
	}
}

// withAntiAffinity excludes nodes, or zones, with other pods of the app.
func withAntiAffinity(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": app}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			}},
		}}
	}
}

func TestFits(t *testing.T) {
	for name, test := range map[string]struct {
		pod     func(*corev1.Pod)
		node    func(*corev1.Node)
		running []func(*corev1.Pod)
		want    string
	}{
		"room":      {nil, nil, nil, ""},
		"cordoned":  {nil, func(n *corev1.Node) { n.Spec.Unschedulable = true }, nil, "cordoned"},
		"not ready": {nil, func(n *corev1.Node) { n.Status.Conditions = nil }, nil, "not ready"},
		"taint": {nil, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}, nil, "taint"},
		"soft taint": {nil, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, nil, ""},
		"tolerated": {
			func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
			},
			func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} },
			nil, "",
		},
		"selector":       {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }, nil, nil, "selector"},
		"requests":       {nil, nil, []func(*corev1.Pod){nil, nil}, "without enough cpu"},
		"number of pods": {nil, func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1") }, []func(*corev1.Pod){nil}, "without enough pods"},
		"a device": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["example.com/card"] = resource.MustParse("1")
		}, nil, nil, "example.com/card"},
		"apart from its like":        {withAntiAffinity("web", corev1.LabelHostname), nil, []func(*corev1.Pod){withAntiAffinity("web", corev1.LabelHostname)}, "must not be near"},
		"apart in a zone":            {withAntiAffinity("web", corev1.LabelTopologyZone), nil, nil, "must not be near"},
		"apart from others":          {withAntiAffinity("web", corev1.LabelHostname), nil, []func(*corev1.Pod){withAntiAffinity("db", corev1.LabelHostname)}, ""},
		"another wants it away":      {func(p *corev1.Pod) { p.Labels["app"] = "db" }, nil, []func(*corev1.Pod){func(p *corev1.Pod) { withAntiAffinity("db", corev1.LabelHostname)(p); p.Labels["app"] = "x" }}, "must not be near"},
		"a term that is not its own": {func(p *corev1.Pod) { withAntiAffinity("db", corev1.LabelHostname)(p); p.Labels["app"] = "web" }, nil, nil, "must not be near"},
	} {
		nodes := make([]corev1.Node, 2)
		for i := range nodes {
			nodes[i] = corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), Labels: map[string]string{
					corev1.LabelHostname: string(rune('a' + i)), corev1.LabelTopologyZone: "z",
				}},
				Status: corev1.NodeStatus{
					Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")},
					Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			}
		}

		if test.node != nil {
			test.node(&nodes[1])
		}

		s := &snapshot{
			nodes: nodes, used: []corev1.ResourceList{{}, {}}, pods: make([]int64, 2), arriving: make([]nodeload.Arrivals, 2),
			requested: make([]nodeload.Amount, 2), onHot: map[int][]*corev1.Pod{}, ready: map[string]int{},
		}
		pod := newPod(test.pod)
		s.add(pod, 0, true, 0, metav1.Now().Time)

		if name == "apart in a zone" {
			other := newPod(test.pod)
			other.UID = "sibling"
			s.add(other, 0, true, 0, metav1.Now().Time)
		}

		for i, change := range test.running {
			other := newPod(change)
			other.UID = types.UID(rune('0' + i))
			s.add(other, 1, false, 0, metav1.Now().Time)
		}

		got := s.fits(pod, 1)
		if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: fits = %q, want %q", name, got, test.want)
		}

		if got == "" {
			s.recordMove(pod, 1)
			if test.running == nil {
				s.recordMove(pod, 1)
				if again := s.fits(pod, 1); again == "" {
					t.Errorf("%s: fits = %q for a third core on a node of two, want a reason", name, again)
				}
			}
		}
	}
}
