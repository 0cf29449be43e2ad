// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/redirect"
	"crane.io/crane/pkg/units"
)

// workloads returns the generated workloads and those of the traces. Files of the traces' directory that contain no
// series are reported on the console and skipped.
func workloads(o *Options, now time.Time, c *console) ([]*load.Workload, error) {
	// The catalog comes first: with traces it is empty by default.
	all := load.Catalog(o.Seed, o.Workloads)
	if o.Traces == "" {
		return all, nil
	}

	files, skipped, err := csv.ReadDir(o.Traces)
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}

	for _, s := range skipped {
		c.progressf("%s", s)
	}

	named := make([]load.NamedSeries, 0, len(files))
	for _, f := range files {
		named = append(named, load.NamedSeries{Name: f.Name, Series: f.Series})
	}

	traced, err := load.FromTraces(named, units.Resource(o.Resource), o.Speed, now)
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}

	if len(traced) == 0 && len(all) == 0 {
		return nil, fmt.Errorf("--traces: %s contains no CSV file with the header ts,value", o.Traces)
	}

	return append(traced, all...), nil
}

// install applies the objects of config/: CRDs, namespaces, RBAC rules and other manifests. Deployments and DaemonSets
// are skipped because simulated nodes cannot run their images: the playground starts those binaries itself. Webhooks
// are configured once craned serves them.
func (p *playground) install(ctx context.Context) error {
	objects, err := manifest.ReadDir(config.Manifests, ".")
	if err != nil {
		return err
	}

	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet" || redirect.IsMetricAdapter(o) || redirect.IsWebhookConfiguration(o)
	})

	if err := p.applier.Apply(ctx, objects...); err != nil {
		return err
	}

	p.console.progressf("applied %d objects of config/: CRDs, RBAC rules, services", len(objects))
	return nil
}

// createWorkloads applies the workloads and waits until their pods run.
func (p *playground) createWorkloads(ctx context.Context) error {
	var objects []*unstructured.Unstructured
	namespaces := map[string]bool{}

	// Each namespace is applied once, before the first workload in it.
	for _, w := range p.workloads {
		if !namespaces[w.Namespace] {
			namespaces[w.Namespace] = true
			objects = append(objects, namespace(w.Namespace))
		}

		for _, o := range w.Objects() {
			u, err := toUnstructured(o)
			if err != nil {
				return fmt.Errorf("converting %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
			}

			objects = append(objects, u)
		}
	}

	if err := p.applier.Apply(ctx, objects...); err != nil {
		return err
	}

	p.console.progressf("applied %d workloads in %d namespaces", len(p.workloads), len(namespaces))

	// Without these components no pod would ever run: do not wait.
	if !p.options.runs(componentControllerManager) || !p.options.runs(componentScheduler) {
		p.console.progressf("without %s and %s no pod runs, and the history covers empty nodes only", componentControllerManager, componentScheduler)
		return nil
	}

	return p.waitForPods(ctx)
}

// toUnstructured converts an object without its status, so that server-side apply owns only the intended fields.
func toUnstructured(o client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}

	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}

func namespace(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

// waitForPods waits until as many pods are ready as the workloads define. Pods of CronJobs do not count.
func (p *playground) waitForPods(ctx context.Context) error {
	// A CronJob has pods only after its first scheduled time.
	want := map[string]int{}

	total := 0
	for _, w := range p.workloads {
		switch w.Kind {
		case "CronJob":
			continue
		case "DaemonSet":
			want[w.Namespace+"/"+w.Name] = p.options.Nodes
		default:
			want[w.Namespace+"/"+w.Name] = w.Replicas
		}

		total += want[w.Namespace+"/"+w.Name]
	}

	var missing map[string]int
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, podsBound, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := p.client.List(ctx, &pods); err != nil {
			return false, err
		}

		missing = missingPods(want, pods.Items)
		return len(missing) == 0, nil
	})

	switch {
	case wait.Interrupted(err) && ctx.Err() == nil && len(missing) > 0:
		// The cause may be the user's own, such as a quota in a reused data directory.
		p.console.progressf("continuing without these pods, which are not ready after %s: %s", podsBound, describeMissing(missing))
		return nil
	case err != nil:
		return fmt.Errorf("waiting for pods to run: %w", err)
	}

	p.console.progressf("%d pods run", total)
	return nil
}

// missingPods returns the number of missing ready pods by workload.
func missingPods(want map[string]int, pods []corev1.Pod) map[string]int {
	missing := map[string]int{}
	maps.Copy(missing, want)

	for i := range pods {
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				missing[pods[i].Namespace+"/"+pods[i].Labels[load.LabelName]]--
			}
		}
	}

	for key, n := range missing {
		if n <= 0 {
			delete(missing, key)
		}
	}

	return missing
}

// describeMissing lists the first few workloads that miss pods.
func describeMissing(missing map[string]int) string {
	const maxListed = 5
	var parts []string
	for i, key := range slices.Sorted(maps.Keys(missing)) {
		if i == maxListed {
			parts = append(parts, fmt.Sprintf("and of %d more workloads", len(missing)-maxListed))
			break
		}

		parts = append(parts, fmt.Sprintf("%d of %s", missing[key], key))
	}

	return strings.Join(parts, ", ")
}

// applyYAML applies a manifest as the cluster administrator.
func applyYAML(ctx context.Context, applier *manifest.Applier, text string) error {
	objects, err := manifest.ParseString(text)
	if err != nil {
		return err
	}

	return applier.Apply(ctx, objects...)
}
