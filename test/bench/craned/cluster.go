// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
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
	"crane.io/crane/internal/controlplane"
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
}

func startCluster(ctx context.Context, o options, scratch string) (*cluster, error) {
	control, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(scratch, "control"), Binary: filepath.Join(o.bin, "controlplane"),
	})
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
	config.QPS, config.Burst = 5000, 5000
	var err error
	if c.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	config.GroupVersion, config.APIPath = &corev1.SchemeGroupVersion, "/api"
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
	fmt.Printf("cluster: %d Deployments in %d namespaces, made in %v\n", c.workloads, c.namespaces, time.Since(began).Round(time.Second))
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

// writes counts the writing requests that the API server has had, by resource and subresource, leases left out.
func (c *cluster) writes(ctx context.Context) (map[string]int64, error) {
	page, err := c.rest.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(string(page)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		verb, of := label(line, "verb"), label(line, "resource")
		switch verb {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		default:
			continue
		}
		// What the API server and its authorization do for themselves is not craned's.
		if of == "leases" || of == "tokenreviews" || of == "subjectaccessreviews" || of == "serviceaccounts" {
			continue
		}
		if sub := label(line, "subresource"); sub != "" {
			of += "/" + sub
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, err
		}
		out[verb+" "+of] += int64(value)
	}
	return out, lines.Err()
}

// label reads a label of a line of metrics; empty where there is none.
func label(line, name string) string {
	for _, before := range []string{"{", ","} {
		if _, rest, found := strings.Cut(line, before+name+`="`); found {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}
	return ""
}

func (c *cluster) stop(ctx context.Context) error { return c.control.Stop(ctx) }
