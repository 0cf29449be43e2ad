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
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/ruleset"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/internal/kube/slimclient"
	"crane.io/crane/pkg/qos"
)

const (
	// answerTimeout bounds the wait for the API server's first answers.
	answerTimeout = 10 * time.Second
	// apiQPS and apiBurst bound the requests of one agent, which writes only on changes.
	apiQPS   = 10
	apiBurst = 20
)

// ClusterOptions are the flags that select the node and where its state is read from.
type ClusterOptions struct {
	// Kubeconfig is the file for the API server; empty for that of the agent's own cluster, if any.
	Kubeconfig string
	// StartSpread bounds the random wait before the first request to the API server.
	StartSpread time.Duration
	// Namespace is Crane's namespace, which is that of craned.
	Namespace  string
	NodeName   string
	NodeLabels string
	// Rules and Pods are files that replace those of the API server.
	Rules, Pods string
}

func (o *ClusterOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Rules, "rules", o.Rules, "File with NodeQOS, PodQOS and AvoidanceActions as YAML documents, instead of those of the API server.")
	fs.StringVar(&o.Pods, "pods", o.Pods, "File with the node's pods, as printed by kubectl get pods -o yaml, without an API server.")
	fs.DurationVar(&o.StartSpread, "start-spread", o.StartSpread, "Maximum random delay before the first request to the API server, so that the agents of many nodes do not start at once; 0 for none.")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig of the API server with the node, its pods and the rules; empty for that of the agent's own cluster, if any.")
	fs.StringVar(&o.NodeName, "hostname-override", o.NodeName, "Name of the node; by default $NODE_NAME, else the host's name.")
	fs.StringVar(&o.NodeLabels, "node-labels", o.NodeLabels, "Labels of the node, as in pool=mixed,zone=a, without an API server. Empty for unknown: every NodeQOS applies.")
}

func (o *ClusterOptions) validate() field.ErrorList {
	var errs field.ErrorList
	if o.StartSpread < 0 || o.StartSpread > maxStartSpread {
		errs = append(errs, invalid("start-spread", o.StartSpread, fmt.Sprintf("must be from 0s to %s", maxStartSpread)))
	}

	if o.Pods != "" && o.Kubeconfig != "" {
		errs = append(errs, invalid("pods", o.Pods, "must not be set together with --kubeconfig"))
	}

	if o.NodeLabels != "" && o.Kubeconfig != "" {
		errs = append(errs, invalid("node-labels", o.NodeLabels, "must not be set together with --kubeconfig: they are those of the Node"))
	}

	if _, err := labels.ConvertSelectorToLabelsMap(o.NodeLabels); err != nil {
		errs = append(errs, invalid("node-labels", o.NodeLabels, err.Error()))
	}

	return errs
}

// nodeName returns the node's name: the flag, else $NODE_NAME, else the host's name.
func (o *ClusterOptions) nodeName() string {
	if o.NodeName != "" {
		return o.NodeName
	}

	if name := os.Getenv("NODE_NAME"); name != "" {
		return name
	}

	name, err := os.Hostname()
	if err != nil {
		return ""
	}

	return name
}

// usesAPIServer reports whether an API server is used: that of --kubeconfig, or that of the agent's own cluster unless files replace it.
func (o *ClusterOptions) usesAPIServer() bool {
	return o.Kubeconfig != "" || o.Pods == "" && o.NodeLabels == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// clients access the API server.
type clients struct {
	slimclient.Interface

	objects dynamic.Interface
	// config is the configuration of all clients.
	config *rest.Config
	// pause stops writes; the other clients write through it.
	pause *pause.Switch
}

func (o *ClusterOptions) clients(clk clock.Clock) (clients, error) {
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
	config.QPS = apiQPS
	config.Burst = apiBurst

	// The switch itself must not be stopped by a pause, so it has a client without its own wrapper.
	direct, err := slimclient.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return clients{}, fmt.Errorf("--kubeconfig: %w", err)
	}

	c := clients{config: config, pause: pause.New(direct, o.Namespace, clk)}
	config.Wrap(c.pause.Wrap)

	if c.Interface, err = slimclient.NewForConfig(config); err != nil {
		return c, fmt.Errorf("--kubeconfig: %w", err)
	}

	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return c, fmt.Errorf("--kubeconfig: %w", err)
	}

	return c, nil
}

// newWatcher returns a watcher of the API server; --rules replaces its rules.
func (o *ClusterOptions) newWatcher(c clients, log logr.Logger, clk clock.WithTicker, beat func(string)) (*cluster.Watcher, error) {
	config := cluster.Config{
		Client:      c.Interface,
		Dynamic:     c.objects,
		Node:        o.nodeName(),
		Namespace:   o.Namespace,
		StartSpread: o.StartSpread,
		Clock:       clk,
		Log:         log,
		Beat:        beat,
	}

	if o.Rules != "" {
		set, err := o.readRules()
		if err != nil {
			return nil, err
		}

		config.Rules = &set
	}

	return cluster.NewWatcher(config), nil
}

// staticSource returns the state read from files.
func (o *ClusterOptions) staticSource() (cluster.Static, error) {
	// Files may name the pods, the labels, both or neither; what is unknown is noted.
	state := cluster.State{IgnoreNodeLabels: true, KnowsRules: true, Note: "the pods of the node are unknown (--pods, --kubeconfig): no PodQOS can match, and no pod would be throttled or evicted"}
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

	state.KnowsPods = true
	state.Note = "pods are those of " + o.Pods
	return cluster.NewStatic(state), nil
}

// readOnce returns the current state and the clients of the API server; nil clients if files are used.
func (o *ClusterOptions) readOnce(ctx context.Context, log logr.Logger, clk clock.WithTicker) (*cluster.State, *clients, error) {
	if !o.usesAPIServer() {
		s, err := o.staticSource()
		if err != nil {
			return nil, nil, err
		}

		return s.State(), nil, nil
	}

	c, err := o.clients(clk)
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
		return nil, nil, fmt.Errorf("querying the API server: %w", err)
	}

	if state.Node == nil {
		// The first problem is that of the Node itself.
		why := append(slices.Concat(state.Unavailable, state.Problems), "the API server has not answered for "+answerTimeout.String())
		return nil, nil, errors.New(why[0])
	}

	return state, &c, nil
}

func (o *ClusterOptions) readRules() (ruleset.Set, error) {
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

// rulesComplete reports whether a plan is based on all rules of the node: the rules and the labels that select them are known. After a
// start they arrive in any order.
func rulesComplete(s *cluster.State) bool {
	return s.KnowsRules && (s.Node != nil || s.IgnoreNodeLabels)
}

// nodePolicy returns the node's policy, and the rules that cannot be used.
func nodePolicy(s *cluster.State, limits qos.Limits) (qos.Policy, []string) {
	var set map[string]string
	switch {
	case s.Node != nil:
		if set = s.Node.Labels; set == nil {
			set = map[string]string{}
		}
	case !s.IgnoreNodeLabels:
		// The node's labels select its rules.
		return qos.Policy{Limits: limits}, append([]string{"the node is unknown, so no rule applies"}, s.Problems...)
	}

	policy, problems := s.Rules.Policy(set, limits)
	return policy, append(problems, s.Problems...)
}
