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
	state, err := p.read(ctx, node)
	switch {
	case err != nil:
		p.changes.Error("forecast", "updating the node's forecast", err)
		state = p.latest()
		if state.tsp == nil {
			state = forecastState{requested: true, reason: err.Error()}
		}

	case !state.requested:
		p.changes.Log("forecast", "no forecast of the node is configured; only its use counts", "reason", fmt.Sprintf("there is no ConfigMap %s/%s", p.namespace, predictionv1alpha1.NodeResourceTemplateConfigMap))
	default:
		p.changes.Log("forecast", "using the forecast of the node", "reason", predictionv1alpha1.NodeResourcePrefix+node.Name)
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.state = state
}

func (p *predictionSync) read(ctx context.Context, node *corev1.Node) (forecastState, error) {
	resource := p.objects.Resource(predictionv1alpha1.GroupVersion.WithResource("timeseriespredictions")).Namespace(p.namespace)
	name := predictionv1alpha1.NodeResourcePrefix + node.Name

	// The API server's cache is fresh enough: forecasts are written once per window.
	raw, err := resource.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})

	var prediction *predictionv1alpha1.TimeSeriesPrediction
	if err == nil {
		prediction, err = decodePrediction(raw)
	}

	if err != nil && !apierrors.IsNotFound(err) {
		return forecastState{}, fmt.Errorf("reading TimeSeriesPrediction %s/%s: %w", p.namespace, name, err)
	}

	p.reads++

	if p.reads%readsPerTemplateCheck == 1 || prediction == nil && p.hasTemplate {
		if prediction, err = p.ensure(ctx, resource, node, prediction); err != nil {
			p.reads = 0 // check again at the next read
			return forecastState{}, err
		}
	}

	return forecastState{tsp: prediction, requested: prediction != nil || p.hasTemplate}, nil
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
	ctx context.Context, resource dynamic.ResourceInterface, node *corev1.Node, current *predictionv1alpha1.TimeSeriesPrediction,
) (*predictionv1alpha1.TimeSeriesPrediction, error) {
	template := p.namespace + "/" + predictionv1alpha1.NodeResourceTemplateConfigMap
	cm, err := p.core.CoreV1().ConfigMaps(p.namespace).Get(ctx, predictionv1alpha1.NodeResourceTemplateConfigMap, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		p.hasTemplate = false
		return current, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", template, err)
	}

	// An invalid template is an error: the last state stays until the template is corrected.
	p.hasTemplate = true

	text, ok := cm.Data[predictionv1alpha1.NodeResourceTemplateKey]
	if !ok {
		return nil, fmt.Errorf("ConfigMap %s has no key %s", template, predictionv1alpha1.NodeResourceTemplateKey)
	}

	spec, err := nodetemplate.Render(text, node)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", template, err)
	}

	want := newPrediction(p.namespace, node, spec)
	if current != nil && equality.Semantic.DeepEqual(current.Spec, want.Spec) && equality.Semantic.DeepEqual(current.OwnerReferences, want.OwnerReferences) {
		return current, nil
	}

	if !p.write {
		if current == nil {
			current = want
		}

		return current, nil
	}

	applied, err := applyPrediction(ctx, resource, want)
	if err != nil {
		return nil, fmt.Errorf("writing TimeSeriesPrediction %s/%s: %w", want.Namespace, want.Name, err)
	}

	return applied, nil
}

func applyPrediction(ctx context.Context, resource dynamic.ResourceInterface, want *predictionv1alpha1.TimeSeriesPrediction) (*predictionv1alpha1.TimeSeriesPrediction, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return nil, err
	}

	delete(content, "status")
	applied, err := resource.Apply(ctx, want.Name, &unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return nil, err
	}

	return decodePrediction(applied)
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
func readForecast[T model.Amount](state forecastState, node *corev1.Node, name corev1.ResourceName, now time.Time, amount func(float64) (T, error)) model.Forecast[T] {
	if state.tsp == nil {
		return model.Forecast[T]{Requested: state.requested, Detail: state.reason}
	}

	identifier, ok := findIdentifier(&state.tsp.Spec, name)
	if !ok {
		return model.Forecast[T]{}
	}

	// Every missing part is stated in Detail, because the offer does not grow while a requested forecast is missing.
	out := model.Forecast[T]{Requested: true}
	if !targetsNode(state.tsp.Spec.TargetRef, node) {
		out.Detail = fmt.Sprintf("TimeSeriesPrediction %s does not target this node", state.tsp.Name)
		return out
	}

	f, err := scalingmetric.PeakForecast(state.tsp, identifier, now)
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
