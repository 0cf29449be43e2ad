// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elastic

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// fieldManager is who writes.
const fieldManager = "crane-agent"

// ensureEvery is how many readings of the prediction there are for one of the template.
const ensureEvery = 10

// predictions keeps the node's TimeSeriesPrediction as the template wants it, and knows the last that was read. sync is called by one
// goroutine, known by any.
type predictions struct {
	core      kubernetes.Interface
	objects   dynamic.Interface
	namespace string
	write     bool
	log       logr.Logger

	mu    sync.Mutex
	state expected

	turn     int
	template bool // there is one
	told     string
}

// known is the state of the last sync.
func (p *predictions) known() expected {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// sync reads the template now and then, and the object each time. What cannot be read stays as it was; a forecast says itself when it ends.
func (p *predictions) sync(ctx context.Context, node *corev1.Node) {
	now, err := p.look(ctx, node)
	if err != nil {
		p.tell("The forecast of the node cannot be kept up", err.Error())
		now = p.known()
		if now.tsp == nil {
			now = expected{wanted: true, why: err.Error()}
		}
	} else if !now.wanted {
		p.tell("Nobody asks for a forecast of the node: what it uses counts alone", fmt.Sprintf("there is no ConfigMap %s/%s", p.namespace, predictionv1alpha1.NodeResourceTemplateConfigMap))
	} else {
		p.tell("The forecast of the node counts", predictionv1alpha1.NodeResourcePrefix+node.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = now
}

// tell logs what has changed.
func (p *predictions) tell(message, why string) {
	if text := message + why; text != p.told {
		p.told = text
		p.log.Info(message, "why", why)
	}
}

func (p *predictions) look(ctx context.Context, node *corev1.Node) (expected, error) {
	resource := p.objects.Resource(predictionv1alpha1.GroupVersion.WithResource("timeseriespredictions")).Namespace(p.namespace)
	name := predictionv1alpha1.NodeResourcePrefix + node.Name
	// The API server's cache will do: forecasts are written once in a window.
	raw, err := resource.Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	var have *predictionv1alpha1.TimeSeriesPrediction
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return expected{}, fmt.Errorf("reading TimeSeriesPrediction %s/%s: %w", p.namespace, name, err)
	default:
		have = &predictionv1alpha1.TimeSeriesPrediction{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, have); err != nil {
			return expected{}, fmt.Errorf("reading TimeSeriesPrediction %s/%s: %w", p.namespace, name, err)
		}
	}
	if p.turn++; p.turn%ensureEvery == 1 || have == nil && p.template {
		if err := p.ensure(ctx, resource, node, have); err != nil {
			p.turn = 0 // at the next reading
			return expected{}, err
		}
	}
	out := expected{tsp: have, wanted: have != nil || p.template}
	if out.wanted && have == nil {
		out.why = "TimeSeriesPrediction " + name + " has just been asked for"
		if !p.write {
			out.why = "TimeSeriesPrediction " + name + " is not made, since nothing is to be changed"
		}
	}
	return out, nil
}

// ensure brings the object in line with the template, if there is one.
func (p *predictions) ensure(ctx context.Context, resource dynamic.ResourceInterface, node *corev1.Node, have *predictionv1alpha1.TimeSeriesPrediction) error {
	where := p.namespace + "/" + predictionv1alpha1.NodeResourceTemplateConfigMap
	cm, err := p.core.CoreV1().ConfigMaps(p.namespace).Get(ctx, predictionv1alpha1.NodeResourceTemplateConfigMap, metav1.GetOptions{ResourceVersion: "0"})
	if apierrors.IsNotFound(err) {
		p.template = false
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", where, err)
	}
	p.template = true
	text, ok := cm.Data[predictionv1alpha1.NodeResourceTemplateKey]
	if !ok {
		return fmt.Errorf("ConfigMap %s has no key %s", where, predictionv1alpha1.NodeResourceTemplateKey)
	}
	spec, err := render(text, node)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", where, err)
	}
	want := prediction(p.namespace, node, spec)
	if have != nil && equality.Semantic.DeepEqual(have.Spec, want.Spec) && equality.Semantic.DeepEqual(have.OwnerReferences, want.OwnerReferences) {
		return nil
	}
	if !p.write {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("TimeSeriesPrediction %s/%s: %w", want.Namespace, want.Name, err)
	}
	delete(content, "status")
	if _, err := resource.Apply(ctx, want.Name, &unstructured.Unstructured{Object: content}, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("writing TimeSeriesPrediction %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// readEvery is the time between two readings, to which some is added at random, so that nodes that started together ask apart.
const (
	readEvery  = time.Minute
	readJitter = 0.2
)
