// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/agent/sense"
	"crane.io/crane/internal/nodeloadpolicy"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// asked is how long an API server may take.
const asked = 10 * time.Second

// cluster is what is known of the node beside what it says itself.
type cluster struct {
	// labels are nil where they are not known.
	labels  map[string]string
	avoided bool
	pods    []corev1.Pod
	known   bool
	note    string
}

// look looks at the host twice and decides once.
func look(ctx context.Context, o *Options, clk clock.Clock) (*report, error) {
	set, err := o.readRules()
	if err != nil {
		return nil, err
	}
	c, err := o.readCluster(ctx)
	if err != nil {
		return nil, err
	}
	policy, problems, err := o.policy(set, c.labels)
	if err != nil {
		return nil, err
	}
	layout, missing := cgroup.Detect(o.root())
	observer := observe.New(o.root(), layout)
	defer observer.Close()
	observer.Look(clk.Now())
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("look at the host: %w", ctx.Err())
	case <-clk.After(o.Interval):
	}
	snapshot := observer.Look(clk.Now())
	pods := inventory.New(c.pods, set.Allowed)
	if !c.known {
		pods.NameFromLogs(o.root())
	}
	var eyes sense.Sense
	observation := eyes.Observe(snapshot, pods, c.avoided)
	r := &report{at: snapshot.At, node: o.node(), snapshot: snapshot, observation: observation, policy: policy, problems: problems, known: pods.Known()}
	r.features = features.Report(o.root(), present(layout, missing), missing, snapshot)
	r.notes = append(r.notes, c.note)
	if set.NodeQOS != nil && c.labels == nil {
		r.notes = append(r.notes, "the node's labels are not known (--node-labels): every NodeQOS is taken")
	}
	// One measurement is not several in a row: what is shown is what happens if it lasts, with the number that is needed.
	lasting := policy
	lasting.Rules = slices.Clone(policy.Rules)
	for i := range lasting.Rules {
		lasting.Rules[i].Trigger = 1
	}
	r.plan = qos.Decide(&lasting, observation, &qos.State{})
	return r, nil
}

func present(l cgroup.Layout, missing error) *cgroup.Layout {
	if missing != nil {
		return nil
	}
	return &l
}

func (o *Options) readRules() (ruleset.Set, error) {
	if o.Rules == "" {
		return ruleset.Set{}, nil
	}
	content, err := os.ReadFile(o.Rules)
	if err != nil {
		return ruleset.Set{}, fmt.Errorf("--rules: %w", err)
	}
	set, err := ruleset.Parse(content)
	if err != nil {
		return ruleset.Set{}, fmt.Errorf("--rules %s: %w", o.Rules, err)
	}
	return set, nil
}

func (o *Options) policy(set ruleset.Set, node map[string]string) (qos.Policy, []string, error) {
	limits, err := o.limits()
	if err != nil {
		return qos.Policy{}, nil, err
	}
	policy, problems := set.Policy(node, limits)
	if o.PolicyConfig == "" {
		return policy, problems, nil
	}
	content, err := os.ReadFile(o.PolicyConfig)
	if err != nil {
		return policy, nil, fmt.Errorf("--policy-config-path: %w", err)
	}
	scheduling, err := nodeloadpolicy.Decode(content)
	if err != nil {
		return policy, nil, fmt.Errorf("--policy-config-path %s: %w", o.PolicyConfig, err)
	}
	policy.Marks = map[qos.Resource]series.Ratio{}
	for resource, marks := range scheduling.Marks {
		policy.Marks[qos.Resource(resource)] = marks.Evict
	}
	return policy, problems, nil
}

// readCluster asks the API server, or reads the file of pods.
func (o *Options) readCluster(ctx context.Context) (cluster, error) {
	var c cluster
	if o.NodeLabels != "" {
		set, err := labels.ConvertSelectorToLabelsMap(o.NodeLabels)
		if err != nil {
			return c, fmt.Errorf("--node-labels: %w", err)
		}
		c.labels = set
	}
	switch {
	case o.Kubeconfig != "":
		return o.askCluster(ctx, c)
	case o.Pods != "":
		content, err := os.ReadFile(o.Pods)
		if err != nil {
			return c, fmt.Errorf("--pods: %w", err)
		}
		if c.pods, err = inventory.Parse(content); err != nil {
			return c, fmt.Errorf("--pods %s: %w", o.Pods, err)
		}
		c.known, c.note = true, "pods are those of "+o.Pods
		return c, nil
	}
	c.note = "pods are not known to any cluster (--pods, --kubeconfig): no PodQOS can be matched, and nobody would be throttled or evicted"
	return c, nil
}

func (o *Options) askCluster(ctx context.Context, c cluster) (cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, asked)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return c, fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return c, fmt.Errorf("--kubeconfig: %w", err)
	}
	node, pods, err := inventory.List(ctx, client, o.node())
	if err != nil {
		return c, err
	}
	if c.labels == nil {
		c.labels = node.Labels
	}
	if c.labels == nil {
		c.labels = map[string]string{}
	}
	c.pods, c.known = pods, true
	c.avoided = slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == ensurancev1alpha1.TaintKey })
	c.note = fmt.Sprintf("pods and labels are those of the API server for node %s", node.Name)
	return c, nil
}
