// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/migrate"
)

// leave removes Crane, which was not installed by Helm, under load, and writes the requests of the pods of "alone" into its template. Nothing else
// changes in any second.
func (o *observer) leave() {
	o.Helper()

	o.ignore(func(name string) bool {
		return strings.HasPrefix(name, "TimeSeriesPrediction ") || strings.HasPrefix(name, "Deployment alone") || strings.HasPrefix(name, "Pod alone-")
	})
	o.resize("alone", "200m")

	if _, errOut, code := o.crane(o.control.Kubeconfig(), "migrate", "away", "run"); code != 1 || !strings.Contains(errOut, "RequestsOfPods") || !strings.Contains(errOut, "Deployment load/alone") {
		o.Fatalf("without a decision: exit code %d: %s", code, errOut)
	}

	away := func(want int, args ...string) {
		o.Helper()

		if out, errOut, code := o.crane(o.control.Kubeconfig(), append([]string{"migrate", "away", "run"}, args...)...); code != want {
			o.Fatalf("away: exit code %d, want %d: %s%s", code, want, out, errOut)
		}
	}

	away(4, "--requests=template", "--scheduler=remove")
	o.hold(5 * time.Second)
	away(0, "--continue")
	o.hold(15 * time.Second)
	o.report("away")
	o.checkGone()

	for name, want := range map[string]string{"by-cpu": "2", "by-forecast": "5", "by-schedule": "6"} {
		hpa := o.get("autoscaling/v2", "HorizontalPodAutoscaler", loadNamespace, "ehpa-"+name)
		if least, former := field(hpa, "spec", "minReplicas"), hpa.GetAnnotations()[migrate.AnnotationMinReplicas]; least != want || (former != "") != (want != "2") || len(hpa.GetOwnerReferences()) > 0 {
			o.Errorf("HPA of %s has a minimum of %s, want %s: %v", name, least, want, hpa.Object["metadata"])
		}
	}

	o.eventually("alone is rolled out with the requests of its pods", func(ctx context.Context) error {
		pods, err := o.list(ctx, "", "v1", "Pod", client.InNamespace(loadNamespace), client.MatchingLabels{"app": "alone"})
		if err != nil {
			return err
		}

		for i := range pods.Items {
			if requests := field(&pods.Items[i], "spec", "containers"); !strings.Contains(requests, "cpu:200m") || !strings.Contains(requests, "memory:256Mi") || !isReady(&pods.Items[i]) {
				return fmt.Errorf("%s: %s", pods.Items[i].GetName(), requests)
			}
		}

		if template := field(o.get("apps/v1", "Deployment", loadNamespace, "alone"), "spec", "template"); len(pods.Items) != 2 || !strings.Contains(template, "cpu:200m") {
			return fmt.Errorf("%d pods, template %s", len(pods.Items), template)
		}

		return nil
	})
}

// resize changes the CPU request of a workload's pods in place, as craned does.
func (o *observer) resize(name, cpu string) {
	o.Helper()

	pods, err := o.list(o.Context(), "", "v1", "Pod", client.InNamespace(loadNamespace), client.MatchingLabels{"app": name})
	if err != nil {
		o.Fatal(err)
	}

	for i := range pods.Items {
		pod := &pods.Items[i]
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
		if err := o.client.SubResource("resize").Patch(o.Context(), pod, client.RawPatch("application/strategic-merge-patch+json", []byte(patch))); err != nil {
			o.Fatal(err)
		}
	}
}
