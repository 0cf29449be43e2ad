// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// maxConcurrentWrites bounds the concurrent write requests.
const maxConcurrentWrites = 16

const (
	replicas = 4
	percent  = 60
)

// cluster is an API server with Deployments and their autoscalers.
type cluster struct {
	options
	control *controlplane.ControlPlane
	client  client.Client
	rest    rest.Interface
	began   time.Time
}

func startCluster(ctx context.Context, o options, dir string) (*cluster, error) {
	control, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: filepath.Join(o.bin, "controlplane")})
	if err != nil {
		return nil, err
	}

	c := &cluster{options: o, control: control}
	if err := c.fill(ctx); err != nil {
		return nil, errors.Join(err, control.Stop(context.WithoutCancel(ctx)))
	}

	return c, nil
}

func (c *cluster) fill(ctx context.Context) error {
	// No webhook and no metrics server answers in this cluster.
	kinds := func(kind string) bool {
		return kind != "MutatingWebhookConfiguration" && kind != "ValidatingWebhookConfiguration" && kind != "APIService"
	}

	if err := harness.Install(ctx, c.control.Config(), "bench", kinds); err != nil {
		return err
	}

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}

	config := c.control.Config()
	// The client must not be the bottleneck of the set-up.
	config.QPS, config.Burst = 5000, 5000
	var err error
	if c.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}

	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()

	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	if c.rest, err = rest.RESTClientFor(config); err != nil {
		return err
	}

	for i := range c.namespaces {
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i)}}); err != nil {
			return err
		}
	}

	if err := c.each(ctx, func(ctx context.Context, i int) error {
		return errors.Join(c.client.Create(ctx, c.deployment(i)), c.client.Create(ctx, c.scaler(i)))
	}); err != nil {
		return err
	}

	c.began = time.Now()
	return nil
}

func (c *cluster) each(ctx context.Context, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentWrites)

	for i := range c.scalers {
		group.Go(func() error { return do(ctx, i) })
	}

	return group.Wait()
}

func namespace(i int) string { return fmt.Sprintf("team-%03d", i) }

func (c *cluster) key(i int, prefix string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace(i % c.namespaces), Name: fmt.Sprintf("%sapp-%05d", prefix, i)}
}

func (c *cluster) meta(i int) metav1.ObjectMeta {
	key := c.key(i, "")
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}

func (c *cluster) deployment(i int) *appsv1.Deployment {
	n := int32(replicas)
	labels := map[string]string{"app": c.key(i, "").Name}
	return &appsv1.Deployment{ObjectMeta: c.meta(i), Spec: appsv1.DeploymentSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "registry.example/app:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		}}}},
	}}
}

func (c *cluster) scaler(i int) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	two := int32(2)
	share := int32(percent)
	return &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		ObjectMeta: c.meta(i),
		Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: c.key(i, "").Name},
			MinReplicas:    &two,
			MaxReplicas:    20,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &share},
			}}},
			Prediction: &autoscalingv1alpha1.Prediction{PredictionAlgorithm: &autoscalingv1alpha1.PredictionAlgorithm{}},
			Crons:      []autoscalingv1alpha1.CronSpec{{CronName: "new-year", Start: "0 0 1 1 *", End: "0 1 1 1 *", TargetReplicas: 3}},
		},
	}
}

// settle writes the status of each HPA and forecast once, and waits until all autoscalers show it.
func (c *cluster) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()

	if err := c.each(ctx, c.writeStatuses); err != nil {
		return err
	}

	// A status counts as seen when craned has written what follows from it.
	fmt.Printf("start: %d autoscalers have their HPA and their prediction after %v\n", c.scalers, time.Since(c.began).Round(time.Second))

	for {
		remaining, err := c.unsettled(ctx)
		if err != nil {
			return err
		}

		if remaining == 0 {
			fmt.Printf("start: all have seen what was decided after %v\n", time.Since(c.began).Round(time.Second))
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%d are not ready: %w", remaining, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// writeStatuses waits for the objects that craned creates for an autoscaler, and writes their statuses.
func (c *cluster) writeStatuses(ctx context.Context, i int) error {
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	for c.client.Get(ctx, c.key(i, "ehpa-"), h) != nil || c.client.Get(ctx, c.key(i, "ehpa-"), tsp) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has no HPA: %w", c.key(i, ""), ctx.Err())
		case <-time.After(time.Second):
		}
	}

	unchangedHPA := h.DeepCopy()
	generation := h.Generation
	share := int32(percent)

	// The benchmark plays the HPA controller, which does not run.
	h.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: &generation,
		CurrentReplicas:    replicas,
		DesiredReplicas:    replicas,
		CurrentMetrics: []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: &share},
		}}},
		Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{{
			Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, Reason: "ValidMetricFound", LastTransitionTime: metav1.Now(),
		}},
	}

	if err := c.client.Status().Patch(ctx, h, client.MergeFrom(unchangedHPA)); err != nil {
		return err
	}

	unchangedPrediction := tsp.DeepCopy()
	now := metav1.Now()

	// It plays the prediction controller as well: a constant forecast of two hours.
	status := predictionv1alpha1.PredictionMetricStatus{
		ResourceIdentifier: "resource.cpu",
		Ready:              true,
		Skill:              "0.40",
		UpdateTime:         &now,
		LastSampleTime:     &now,
		Scaling: &predictionv1alpha1.ScalingChoice{
			Use:         true,
			Quantile:    "0.8",
			Fill:        "0.85",
			LeadSeconds: 180,
			Why:         "it paid",
		},
		Prediction: []predictionv1alpha1.MetricTimeSeries{{}},
	}

	for m := range 120 {
		status.Prediction[0].Samples = append(status.Prediction[0].Samples, predictionv1alpha1.Sample{
			Value: "1.20000", Timestamp: now.Add(time.Duration(m) * time.Minute).Unix(),
		})
	}

	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{status}
	return c.client.Status().Patch(ctx, tsp, client.MergeFrom(unchangedPrediction))
}

// unsettled counts the autoscalers whose status is not up to date.
func (c *cluster) unsettled(ctx context.Context) (int, error) {
	var list autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerList
	if err := c.client.List(ctx, &list); err != nil {
		return 0, err
	}

	unsettled := 0
	for i := range list.Items {
		s := &list.Items[i].Status
		predicting := meta.FindStatusCondition(s.Conditions, autoscalingv1alpha1.ConditionPredictionReady)
		if s.ExpectReplicas == nil || *s.ExpectReplicas != replicas || predicting == nil || predicting.Reason != autoscalingv1alpha1.ReasonMetricsAPIMissing {
			unsettled++
		}
	}

	return unsettled, nil
}
