// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// writersAtOnce is how many requests make and change objects at once.
const writersAtOnce = 16

// cluster is an API server with the workloads of the history.
type cluster struct {
	options
	control *controlplane.ControlPlane
	client  client.Client
	rest    rest.Interface
	// description is how it was made.
	description string
}

func startCluster(ctx context.Context, o options, scratch string) (*cluster, error) {
	with := controlplane.Options{Dir: filepath.Join(scratch, "control"), Binary: filepath.Join(o.bin, "controlplane")}
	if o.profiles != "" {
		with.ExtraArgs = map[controlplane.Component][]string{controlplane.APIServer: {"--profiling=true"}}
	}

	control, err := controlplane.Start(ctx, with)
	if err != nil {
		return nil, err
	}

	c := &cluster{options: o, control: control}
	if err := c.fill(ctx); err != nil {
		return nil, errors.Join(err, c.stop(context.WithoutCancel(ctx)))
	}

	return c, nil
}

func (c *cluster) fill(ctx context.Context) error {
	if err := harness.Install(ctx, c.control.Config(), "bench", harness.Everything); err != nil {
		return err
	}

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), analysisv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}

	config := c.control.Config()
	// The client must not be the bottleneck of the set-up.
	config.QPS, config.Burst = 5000, 5000
	var err error
	if c.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}

	// Metrics of the API server are text, which the typed client cannot read.
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()

	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	if c.rest, err = rest.RESTClientFor(config); err != nil {
		return err
	}

	began := time.Now()
	for i := range c.namespaces {
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i)}}); err != nil {
			return err
		}
	}

	if err := c.each(ctx, c.workloads, func(ctx context.Context, i int) error { return c.client.Create(ctx, c.deployment(i)) }); err != nil {
		return err
	}

	c.description = fmt.Sprintf("%d Deployments in %d namespaces, made in %v", c.workloads, c.namespaces, time.Since(began).Round(time.Second))
	logf("cluster: %s", c.description)
	return nil
}

// each does something for each of so many workloads, some at once.
func (c *cluster) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writersAtOnce)

	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}

	return group.Wait()
}

// Names are those of the generator of the history.
func namespace(workload int) string { return fmt.Sprintf("team-%03d", workload) }

func (c *cluster) deployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app": fmt.Sprintf("app-%05d", i)}
	replicas := int32(c.podsPerWorkload)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i % c.namespaces), Name: labels["app"], Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "registry.example/app:1",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
				}},
			}}}},
		},
	}
}

// profile writes a profile of the API server into a directory; nothing without one.
func (c *cluster) profile(ctx context.Context, dir string) error {
	if dir == "" {
		return nil
	}

	page, err := c.rest.Get().AbsPath("/debug/pprof/profile").Param("seconds", "50").DoRaw(ctx)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, "apiserver.pb.gz"), page, 0o600)
}

func (c *cluster) stop(ctx context.Context) error { return c.control.Stop(ctx) }
