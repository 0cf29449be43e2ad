// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/pkg/qos"
)

const (
	// answerTimeout is how long an API server may take to say something of everything at first.
	answerTimeout = 10 * time.Second
	// apiQPS and apiBurst bound the requests of one agent: it writes on changes alone.
	apiQPS, apiBurst = 10, 20
)

// usesAPIServer tells whether there is an API server: one that a kubeconfig names, or that of the cluster that the agent runs in, unless
// files say what there is.
func (o *Options) usesAPIServer() bool {
	return o.Kubeconfig != "" || o.Pods == "" && o.NodeLabels == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// clients are how the API server is asked.
type clients struct {
	kubernetes.Interface

	objects dynamic.Interface
	// config is what both were made of.
	config *rest.Config
}

func (o *Options) clients() (clients, error) {
	var config *rest.Config
	var err error
	if o.Kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	} else {
		config, err = rest.InClusterConfig()
	}
	if err != nil {
		return clients{}, fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = "crane-agent/" + version.String()
	config.QPS, config.Burst = apiQPS, apiBurst
	c := clients{config: config}
	if c.Interface, err = kubernetes.NewForConfig(config); err != nil {
		return c, fmt.Errorf("--kubeconfig: %w", err)
	}
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return c, fmt.Errorf("--kubeconfig: %w", err)
	}
	return c, nil
}

// newWatcher follows the API server; rules are its own where no file has them.
func (o *Options) newWatcher(c clients, log logr.Logger, clk clock.WithTicker, beat func(string)) (*cluster.Watcher, error) {
	config := cluster.Config{Client: c.Interface, Dynamic: c.objects, Node: o.nodeName(), Clock: clk, Log: log, Beat: beat}
	if o.Rules != "" {
		set, err := o.readRules()
		if err != nil {
			return nil, err
		}
		config.Rules = &set
	}
	return cluster.NewWatcher(config), nil
}

// staticSource is what files say.
func (o *Options) staticSource() (cluster.Static, error) {
	state := cluster.State{IgnoreNodeLabels: true, KnowsRules: true, Note: "pods are not known to any cluster (--pods, --kubeconfig): no PodQOS can be matched, and nobody would be throttled or evicted"}
	var err error
	if state.Rules, err = o.readRules(); err != nil {
		return cluster.Static{}, err
	}
	if o.NodeLabels != "" {
		set, err := labels.ConvertSelectorToLabelsMap(o.NodeLabels)
		if err != nil {
			return cluster.Static{}, fmt.Errorf("--node-labels: %w", err)
		}
		state.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.nodeName(), Labels: set}}
	}
	if o.Pods == "" {
		return cluster.NewStatic(state), nil
	}
	content, err := os.ReadFile(o.Pods)
	if err != nil {
		return cluster.Static{}, fmt.Errorf("--pods: %w", err)
	}
	if state.Pods, err = inventory.Parse(content); err != nil {
		return cluster.Static{}, fmt.Errorf("--pods %s: %w", o.Pods, err)
	}
	state.KnowsPods, state.Note = true, "pods are those of "+o.Pods
	return cluster.NewStatic(state), nil
}

// readOnce is what is known now, and how the API server was asked; nil where files say it.
func (o *Options) readOnce(ctx context.Context, log logr.Logger, clk clock.WithTicker) (*cluster.State, *clients, error) {
	if !o.usesAPIServer() {
		s, err := o.staticSource()
		if err != nil {
			return nil, nil, err
		}
		return s.State(), nil, nil
	}
	c, err := o.clients()
	if err != nil {
		return nil, nil, err
	}
	w, err := o.newWatcher(c, log, clk, func(string) {})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Answered():
	case <-ctx.Done():
	}
	state := w.State()
	cancel()
	if err := <-ended; err != nil {
		return nil, nil, fmt.Errorf("ask the API server: %w", err)
	}
	if state.Node == nil {
		// The first is of the node itself.
		why := append(slices.Concat(state.Unavailable, state.Problems), "the API server has said nothing for "+answerTimeout.String())
		return nil, nil, errors.New(why[0])
	}
	return state, &c, nil
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

// rulesComplete tells that a plan follows from all rules that are for the node: that these are known, and the node by whose labels they are
// chosen. What of it is known first at a start is chance.
func rulesComplete(s *cluster.State) bool {
	return s.KnowsRules && (s.Node != nil || s.IgnoreNodeLabels)
}

// nodePolicy makes the rules of a state. Problems are what cannot be used and what is not known.
func nodePolicy(s *cluster.State, limits qos.Limits) (qos.Policy, []string) {
	var set map[string]string
	switch {
	case s.Node != nil:
		if set = s.Node.Labels; set == nil {
			set = map[string]string{}
		}
	case !s.IgnoreNodeLabels:
		// Which rules are for this node follows from its labels.
		return qos.Policy{Limits: limits}, append([]string{"the node is not known, so that no rule holds"}, s.Problems...)
	}
	policy, problems := s.Rules.Policy(set, limits)
	return policy, append(problems, s.Problems...)
}
