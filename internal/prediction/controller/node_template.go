// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/prediction/nodetemplate"
)

const (
	// templateAge is how long the template is used before it is read again, checkAge how long a result holds for an unchanged object. 5,000
	// nodes are read eight times a second.
	templateAge = 10 * time.Second
	checkAge    = 10 * time.Minute
)

// NodeTemplates checks that the predictions which agents write for their nodes are what the template says. An agent may write the prediction
// of its own node, and its expressions are not bounded by a namespace: without this check a compromised node reads every series.
type NodeTemplates struct {
	// Reader reads Nodes and the template from the API server.
	Reader client.Reader
	// Namespace is Crane's own.
	Namespace string
	Clock     clock.PassiveClock

	mu      sync.Mutex
	text    string
	readAt  time.Time
	checked map[types.UID]templateCheck
}

// templateCheck is a version of a prediction that the template yields.
type templateCheck struct {
	generation int64
	text       string
	at         time.Time
}

// templateError is returned for a prediction that the template does not yield.
type templateError struct{ reason string }

// Error implements error.
func (e templateError) Error() string { return e.reason }

// Check returns a templateError for the prediction of a node that is not what the template yields, and another error if this cannot be found
// out. It returns nil for all other predictions. Whatever sends queries of a prediction calls it first.
func (n *NodeTemplates) Check(ctx context.Context, tsp *predictionv1alpha1.TimeSeriesPrediction) error {
	name, ok := strings.CutPrefix(tsp.Name, predictionv1alpha1.NodeResourcePrefix)
	if n == nil || !ok || tsp.Namespace != n.Namespace {
		return nil
	}

	text, err := n.template(ctx)
	if err != nil {
		return err
	}

	// Reconciliations are much more frequent than changes of the Node or the template.
	n.mu.Lock()
	last, ok := n.checked[tsp.UID]
	n.mu.Unlock()

	now := n.Clock.Now()
	if ok && last.generation == tsp.Generation && last.text == text && now.Sub(last.at) < checkAge {
		return nil
	}

	node := &corev1.Node{}
	if err := n.Reader.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		return templateError{fmt.Sprintf("There is no Node %s.", name)}
	} else if err != nil {
		return fmt.Errorf("reading Node %s: %w", name, err)
	}

	want, err := nodetemplate.Render(text, node)
	if err != nil {
		return templateError{fmt.Sprintf("ConfigMap %s/%s: %v.", n.Namespace, predictionv1alpha1.NodeResourceTemplateConfigMap, err)}
	}

	if !equality.Semantic.DeepEqual(want, tsp.Spec) {
		return templateError{fmt.Sprintf("The spec is not what ConfigMap %s/%s yields for Node %s; the agent of the node updates it within ten minutes.",
			n.Namespace, predictionv1alpha1.NodeResourceTemplateConfigMap, name)}
	}

	n.record(tsp.UID, templateCheck{tsp.Generation, text, now})
	return nil
}

// template returns the text of the template.
func (n *NodeTemplates) template(ctx context.Context) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if now := n.Clock.Now(); n.readAt.IsZero() || now.Sub(n.readAt) >= templateAge || now.Before(n.readAt) {
		var cm corev1.ConfigMap
		err := n.Reader.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: predictionv1alpha1.NodeResourceTemplateConfigMap}, &cm)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading ConfigMap %s/%s: %w", n.Namespace, predictionv1alpha1.NodeResourceTemplateConfigMap, err)
		}

		n.text = cm.Data[predictionv1alpha1.NodeResourceTemplateKey]
		n.readAt = now
	}

	if n.text == "" {
		return "", templateError{fmt.Sprintf("There is no template in ConfigMap %s/%s, key %s: predictions named %s* follow it.",
			n.Namespace, predictionv1alpha1.NodeResourceTemplateConfigMap, predictionv1alpha1.NodeResourceTemplateKey, predictionv1alpha1.NodeResourcePrefix)}
	}

	return n.text, nil
}

// record stores a result and drops those that are too old.
func (n *NodeTemplates) record(uid types.UID, c templateCheck) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.checked == nil {
		n.checked = map[types.UID]templateCheck{}
	}

	for old, o := range n.checked {
		if c.at.Sub(o.at) >= checkAge {
			delete(n.checked, old)
		}
	}

	n.checked[uid] = c
}

// isTemplateError reports whether a prediction is refused because of its template.
func isTemplateError(err error) bool { return errors.As(err, &templateError{}) }
