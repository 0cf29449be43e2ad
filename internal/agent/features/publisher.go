// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/kube/slimclient"
)

const (
	// detectInterval is the interval of detection: modules are loaded and kubelets restarted.
	detectInterval = 10 * time.Second
	// minWriteInterval is the least time between two writes, so that flapping features do not write each time.
	minWriteInterval = time.Minute
	// requestTimeout bounds a request to the API server.
	requestTimeout = 10 * time.Second
)

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	// List returns the features; nil if they are not known yet.
	List func() []Feature
	// Node returns the watched Node; nil if unknown.
	Node func() *corev1.Node
	// Client writes the annotation; nil without an API server.
	Client slimclient.Interface
	Clock  clock.WithTicker
	Log    logr.Logger
	Beat   func(step string)
}

// Publisher is the manager that publishes the features as a metric and, on change, in an annotation of the Node.
type Publisher struct {
	config PublisherConfig
	latest atomic.Pointer[[]Feature]

	lastWrite time.Time
	failed    bool
}

// NewPublisher returns a publisher to be started with Run.
func NewPublisher(c PublisherConfig) *Publisher { return &Publisher{config: c} }

// Name implements the agent's Manager.
func (*Publisher) Name() string { return "features" }

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	ticker := p.config.Clock.NewTicker(detectInterval)
	defer ticker.Stop()

	// The first snapshot is available soon after the start.
	soon := p.config.Clock.NewTimer(2 * time.Second)
	defer soon.Stop()

	for {
		p.publish(ctx)
		p.config.Beat("publish")

		select {
		case <-ctx.Done():
			return nil
		case <-soon.C():
		case <-ticker.C():
		}
	}
}

func (p *Publisher) publish(ctx context.Context) {
	list := p.config.List()
	if list == nil {
		return
	}

	p.latest.Store(&list)
	node := p.config.Node()
	if p.config.Client == nil || node == nil {
		return
	}

	text, err := encode(list)
	if err == nil && text == node.Annotations[ensurancev1alpha1.AnnotationAgentFeatures] {
		return
	}

	// Flapping features would otherwise write every ten seconds.
	now := p.config.Clock.Now()
	if since := now.Sub(p.lastWrite); since >= 0 && since < minWriteInterval && !p.lastWrite.IsZero() {
		return
	}

	if err == nil {
		err = p.write(ctx, node.Name, text)
	}

	if err == nil {
		p.lastWrite = now
		p.failed = false
		return
	}

	if !p.failed && ctx.Err() == nil {
		p.config.Log.Error(err, "writing the features to the node; will retry")
	}
	p.failed = true
}

func encode(list []Feature) (string, error) {
	all := make(map[string]string, len(list))
	for _, f := range list {
		all[f.Name] = f.String()
	}

	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encoding the features: %w", err)
	}

	return string(text), nil
}

func (p *Publisher) write(ctx context.Context, node, text string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{ensurancev1alpha1.AnnotationAgentFeatures: text}}})
	if err != nil {
		return fmt.Errorf("encoding the features: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	_, err = p.config.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "crane-agent"})
	if err != nil {
		return fmt.Errorf("annotating node %s: %w", node, err)
	}

	return nil
}

var featureDesc = prometheus.NewDesc("crane_agent_feature", "1 for each feature in the state that it is in: on, off or unsupported.", []string{"feature", "state"}, nil)

// Describe implements prometheus.Collector.
func (*Publisher) Describe(to chan<- *prometheus.Desc) { to <- featureDesc }

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(to chan<- prometheus.Metric) {
	list := p.latest.Load()
	if list == nil {
		return
	}

	for _, f := range *list {
		to <- prometheus.MustNewConstMetric(featureDesc, prometheus.GaugeValue, 1, f.Name, string(f.State))
	}
}
