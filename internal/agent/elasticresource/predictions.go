// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/agent/oncelog"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/slimclient"
	"crane.io/crane/internal/prediction/nodetemplate"
	model "crane.io/crane/pkg/elastic"
)

const fieldManager = "crane-agent"

// readsPerTemplateCheck is the number of reads of the prediction per read of the template.
const readsPerTemplateCheck = 10

// predictionSync creates and updates the node's TimeSeriesPrediction from the template and holds its last state. sync is called by one
// goroutine, latest by any.
type predictionSync struct {
	core      slimclient.Interface
	objects   dynamic.Interface
	namespace string
	write     bool

	mu    sync.Mutex
	state forecastState

	reads       int
	hasTemplate bool // found at the last check
	changes     *oncelog.Logger
}

// latest returns the state of the last sync.
func (p *predictionSync) latest() forecastState {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.state
}

// sync reads the object, and at intervals the template. After an error the last state stays; forecasts carry their own end.
func (p *predictionSync) sync(ctx context.Context, node *corev1.Node) {
	now, err := p.read(ctx, node)
	switch {
	case err != nil:
		p.changes.Log("forecast", "failed to update the node's forecast", "reason", err.Error())
		now = p.latest()
		if now.tsp == nil {
			now = forecastState{requested: true, reason: err.Error()}
		}

	case !now.requested:
		p.changes.Log("forecast", "no forecast of the node is configured; only its use counts", "reason", fmt.Sprintf("there is no ConfigMap %s/%s", p.namespace, predictionv1alpha1.NodeResourceTemplateConfigMap))
	default:
		p.changes.Log("forecast", "using the forecast of the node", "reason", predictionv1alpha1.NodeResourcePrefix+node.Name)
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.state = now
}

func (p *predictionSync) read(ctx context.Context, node *corev1.Node) (forecastState, error) {
	resource := p.objects.Resource(predictionv1alpha1.GroupVersion.WithResource("timeseriespredictions")).Namespace(p.namespace)
	name := predictionv1alpha1.NodeResourcePrefix + node.Name

	// The API server's cache is fresh enough: forecasts are written once per window.
	raw, err := resource.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})

	var have *predictionv1alpha1.TimeSeriesPrediction
	if err == nil {
		have, err = decodePrediction(raw)
	}

	if err != nil && !apierrors.IsNotFound(err) {
		return forecastState{}, fmt.Errorf("reading TimeSeriesPrediction %s/%s: %w", p.namespace, name, err)
	}

	p.reads++

	if p.reads%readsPerTemplateCheck == 1 || have == nil && p.hasTemplate {
		if have, err = p.ensure(ctx, resource, node, have); err != nil {
			p.reads = 0 // check again at the next read
			return forecastState{}, err
		}
	}

	return forecastState{tsp: have, requested: have != nil || p.hasTemplate}, nil
}

func decodePrediction(o *unstructured.Unstructured) (*predictionv1alpha1.TimeSeriesPrediction, error) {
	out := &predictionv1alpha1.TimeSeriesPrediction{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		return nil, fmt.Errorf("is none: %w", err)
	}

	return out, nil
}

// ensure creates or updates the object from the template, if there is one, and returns it. A dry run returns what would be written.
func (p *predictionSync) ensure(
	ctx context.Context, resource dynamic.ResourceInterface, node *corev1.Node, have *predictionv1alpha1.TimeSeriesPrediction,
) (*predictionv1alpha1.TimeSeriesPrediction, error) {
	where := p.namespace + "/" + predictionv1alpha1.NodeResourceTemplateConfigMap
	cm, err := p.core.CoreV1().ConfigMaps(p.namespace).Get(ctx, predictionv1alpha1.NodeResourceTemplateConfigMap, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		p.hasTemplate = false
		return have, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", where, err)
	}

	p.hasTemplate = true
	text, ok := cm.Data[predictionv1alpha1.NodeResourceTemplateKey]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s has no key %s", where, predictionv1alpha1.NodeResourceTemplateKey)
	}

	spec, err := nodetemplate.Render(text, node)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", where, err)
	}

	want := newPrediction(p.namespace, node, spec)
	if have != nil && equality.Semantic.DeepEqual(have.Spec, want.Spec) && equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences) {
		return have, nil
	}

	if !p.write {
		if have == nil {
			have = want
		}

		return have, nil
	}

	made, err := applyPrediction(ctx, resource, want)
	if err != nil {
		return nil, fmt.Errorf("writing TimeSeriesPrediction %s/%s: %w", want.Namespace, want.Name, err)
	}

	return made, nil
}

func applyPrediction(ctx context.Context, resource dynamic.ResourceInterface, want *predictionv1alpha1.TimeSeriesPrediction) (*predictionv1alpha1.TimeSeriesPrediction, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return nil, err
	}

	delete(content, "status")
	made, err := resource.Apply(ctx, want.Name, &unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return nil, err
	}

	return decodePrediction(made)
}

// predictionInterval is the interval of reads, with jitter so that nodes that started together spread their requests.
const (
	predictionInterval = time.Minute
	predictionJitter   = 0.2
)

// forecastState is the node's TimeSeriesPrediction as last read.
type forecastState struct {
	// tsp is nil if there is none.
	tsp *predictionv1alpha1.TimeSeriesPrediction
	// requested is set if a template or an object requests forecasts.
	requested bool
	// reason is the reason why a requested forecast is missing.
	reason string
}

// readForecast returns the peak forecast of a resource. Without a metric for the resource no forecast is requested.
func readForecast[T model.Amount](e forecastState, node *corev1.Node, name corev1.ResourceName, now time.Time, amount func(float64) (T, error)) model.Forecast[T] {
	if e.tsp == nil {
		return model.Forecast[T]{Requested: e.requested, Detail: e.reason}
	}

	identifier, ok := findIdentifier(&e.tsp.Spec, name)
	if !ok {
		return model.Forecast[T]{}
	}

	out := model.Forecast[T]{Requested: true}
	if !targetsNode(e.tsp.Spec.TargetRef, node) {
		out.Detail = fmt.Sprintf("TimeSeriesPrediction %s does not target this node", e.tsp.Name)
		return out
	}

	f, err := scalingmetric.PeakForecast(e.tsp, identifier, now)
	if err == nil {
		out.Peak, err = amount(f.Value)
	}

	if err != nil {
		out.Detail = err.Error()
		return out
	}

	out.OK = true
	out.Until = f.ExpiresAt
	out.Detail = f.Reason

	return out
}

// findIdentifier returns the metric of a resource: by its resourceQuery, else by its name (cpu, memory, resource.cpu or resource.memory).
// Expressions are in cores and in bytes.
func findIdentifier(spec *predictionv1alpha1.TimeSeriesPredictionSpec, name corev1.ResourceName) (string, bool) {
	for i := range spec.PredictionMetrics {
		m := &spec.PredictionMetrics[i]
		if m.Type == predictionv1alpha1.ResourceQueryMetricType {
			if m.ResourceQuery != nil && *m.ResourceQuery == name {
				return m.ResourceIdentifier, true
			}

			continue
		}

		if slices.Contains([]string{string(name), "resource." + string(name)}, m.ResourceIdentifier) {
			return m.ResourceIdentifier, true
		}
	}

	return "", false
}

// targetsNode reports whether target is the node, by name or, as in gocrane, by one of its addresses.
func targetsNode(target *corev1.ObjectReference, node *corev1.Node) bool {
	if target == nil || !strings.EqualFold(target.Kind, kindNode) {
		return false
	}

	return target.Name == node.Name || slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == target.Name })
}
