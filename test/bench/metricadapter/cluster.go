// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/internal/testbed/redirect"
	"crane.io/crane/test/integration/harness"
)

// window of each forecast, in seconds: the default, so that a series has two hours of minutes.
const window = predictionv1alpha1.DefaultPredictionWindowSeconds

// identifiers returns the metrics of each prediction.
func identifiers() []string { return []string{"resource.cpu", "external.requests_per_second"} }

type cluster struct {
	control *controlplane.ControlPlane
	client  client.Client
}

func startCluster(ctx context.Context, o options, dir string) (*cluster, error) {
	control, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: filepath.Join(o.bin, "controlplane")})
	if err != nil {
		return nil, err
	}

	scheme := runtime.NewScheme()
	err = errors.Join(clientgoscheme.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme))
	if err == nil {
		err = harness.Install(ctx, control.Config(), "bench", harness.Everything)
	}

	c := &cluster{control: control}
	if err == nil {
		c.client, err = client.New(control.Config(), client.Options{Scheme: scheme})
	}

	if err != nil {
		return nil, errors.Join(err, control.Stop(context.WithoutCancel(ctx)))
	}

	return c, nil
}

func namespaceOf(i int, o options) string { return fmt.Sprintf("team-%d", i%o.namespaces) }

func keyOf(i int, o options, identifier string) scalingmetric.Key {
	return scalingmetric.Key{
		TargetKind:      "Deployment",
		TargetName:      fmt.Sprintf("service-%d", i),
		TargetNamespace: namespaceOf(i, o),
		Identifier:      identifier,
	}
}

// fill creates the autoscalers and their predictions, like the controllers of craned.
func (c *cluster) fill(ctx context.Context, o options) error {
	began := time.Now()
	for i := range o.namespaces {
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i, o)}}); err != nil {
			return err
		}
	}

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)

	for i := range o.autoscalers {
		group.Go(func() error { return c.createAutoscaler(ctx, i, o) })
	}

	if err := group.Wait(); err != nil {
		return err
	}

	fmt.Printf("%d autoscalers with predictions made in %v\n", o.autoscalers, time.Since(began).Round(time.Second))
	return nil
}

func (c *cluster) createAutoscaler(ctx context.Context, i int, o options) error {
	target := keyOf(i, o, "")
	ehpa := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: target.TargetNamespace, Name: target.TargetName}}
	ref := &ehpa.Spec.ScaleTargetRef
	ref.APIVersion = "apps/v1"
	ref.Kind = target.TargetKind
	ref.Name = target.TargetName
	ehpa.Spec.MinReplicas = new(int32(1))

	ehpa.Spec.MaxReplicas = 50
	ehpa.Spec.Crons = []autoscalingv1alpha1.CronSpec{{CronName: "office", Start: "0 8 * * 1-5", End: "0 18 * * 1-5", TargetReplicas: 10, TimeZone: new("Europe/Berlin")}}
	if err := c.client.Create(ctx, ehpa); err != nil {
		return err
	}

	tsp := &predictionv1alpha1.TimeSeriesPrediction{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: target.TargetNamespace, Name: autoscalingv1alpha1.ManagedObjectPrefix + target.TargetName,
			Labels: map[string]string{autoscalingv1alpha1.LabelManagedBy: autoscalingv1alpha1.ManagedByEffectiveHPA},
		},
		Spec: predictionv1alpha1.TimeSeriesPredictionSpec{
			TargetRef: &corev1.ObjectReference{
				APIVersion: "apps/v1",
				Kind:       target.TargetKind,
				Namespace:  target.TargetNamespace,
				Name:       target.TargetName,
			},
			PredictionWindowSeconds: window,
		},
	}

	// Each metric gets a forecast of two windows, as craned writes it.
	now := time.Now().Truncate(time.Minute)

	status := predictionv1alpha1.TimeSeriesPredictionStatus{}
	for _, identifier := range identifiers() {
		tsp.Spec.PredictionMetrics = append(tsp.Spec.PredictionMetrics, predictionv1alpha1.PredictionMetric{
			ResourceIdentifier: identifier,
			Type:               predictionv1alpha1.ExpressionQueryMetricType,
			ExpressionQuery:    &predictionv1alpha1.ExpressionQuery{Expression: "vector(1)"},
			Algorithm:          predictionv1alpha1.Algorithm{AlgorithmType: predictionv1alpha1.AlgorithmTypeDSP, DSP: &predictionv1alpha1.DSP{}},
		})

		var samples []predictionv1alpha1.Sample
		for m := range 2 * window / 60 {
			value := 1.5 + math.Sin(float64(m+i)/20)
			samples = append(samples, predictionv1alpha1.Sample{
				Value: strconv.FormatFloat(value, 'f', 5, 64), Timestamp: now.Add(time.Duration(m) * time.Minute).Unix(),
			})
		}

		status.PredictionMetrics = append(status.PredictionMetrics, predictionv1alpha1.PredictionMetricStatus{
			ResourceIdentifier: identifier,
			Ready:              true,
			Skill:              "0.8",
			UpdateTime:         &metav1.Time{Time: now},
			LastSampleTime:     &metav1.Time{Time: now},
			Prediction:         []predictionv1alpha1.MetricTimeSeries{{Samples: samples}},
		})
	}

	if err := c.client.Create(ctx, tsp); err != nil {
		return err
	}

	tsp.Status = status
	return c.client.Status().Update(ctx, tsp)
}

// startAdapter starts the adapter with the rights of config/ and registers it.
func (c *cluster) startAdapter(ctx context.Context, o options, logFile string) (*adapter, error) {
	kubeconfig, err := c.control.KubeconfigFor(ctx, "metric-adapter", controlplane.ServiceAccount("crane-system", "metric-adapter"))
	if err != nil {
		return nil, err
	}

	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}

	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return nil, err
	}

	if objects, err = redirect.MetricAdapter(objects, port); err != nil {
		return nil, err
	}

	applier, err := manifest.NewApplier(c.control.Config(), "bench")
	if err != nil {
		return nil, err
	}

	if err := applier.Apply(ctx, objects...); err != nil {
		return nil, err
	}

	child, err := process.Start(process.Spec{
		Name:    "metric-adapter",
		Path:    filepath.Join(o.bin, "metric-adapter"),
		LogFile: logFile,
		Args:    []string{"--lister-kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port)},
		Env:     []string{"CRANE_SYSTEM_NAMESPACE=crane-system"},
	})
	if err != nil {
		return nil, err
	}

	return &adapter{cluster: c, process: child, address: "https://127.0.0.1:" + strconv.Itoa(port)}, nil
}

// freePort returns a free port of the loopback interface.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()

	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, err
	}

	return strconv.Atoi(port)
}
