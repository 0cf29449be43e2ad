// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// calibrate writes the evidence of the policy calibrated, without which nothing reacts.
func calibrate(t *testing.T, rec *analysisv1alpha1.Recommendation) {
	t.Helper()

	changed := rec.DeepCopy()
	changed.Status.Evidence = []analysisv1alpha1.CalibrationEvidence{{Container: "app", Target: "0.005", Achieved: "0.004", Days: 12}}
	if err := admin.Status().Patch(t.Context(), changed, client.MergeFrom(rec)); err != nil {
		t.Fatal(err)
	}
}

// hotCores is below 1500m by half a millicore, to which rounding up leads: rates have rounding errors, so that 1.5 cores would be 1501m at
// one of a hundred readings.
const hotCores = 1.4995

// serveUsage returns a Prometheus server in which each pod has used these cores for the last minutes, and goes on for some.
func serveUsage(t *testing.T, namespace string, cores map[string]float64) *promserver.Server {
	t.Helper()

	server := harness.OpenPrometheus(t, promserver.Options{Dir: t.TempDir()})
	start := time.Now().Add(-3 * time.Minute)
	for at := time.Duration(0); at < 13*time.Minute; at += 15 * time.Second {
		var batch []promserver.Sample
		for pod, v := range cores {
			batch = append(batch, promserver.Sample{Value: v * at.Seconds(), Labels: labels.FromStrings(
				"__name__", "container_cpu_usage_seconds_total", "namespace", namespace, "pod", pod, "container", "app")})
		}

		if err := server.Append(t.Context(), "cadvisor", start.Add(at), batch); err != nil {
			t.Fatal(err)
		}
	}

	return server
}

// checkCPU checks the CPU requests of pods by name, in millicores.
func checkCPU(want map[string]int64) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			if got := pods[i].Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got != want[pods[i].Name] {
				return fmt.Errorf("pod %s requests %dm, want %dm", pods[i].Name, got, want[pods[i].Name])
			}
		}

		return nil
	}
}

// TestReaction checks on a real API server that pods above their request are raised in place to 1.3 times their usage, as far as their
// node has room, that other pods and workloads that are not calibrated or not adopted stay, that a dry run changes nothing and names the
// request, and that the request returns when adoption is turned off.
func TestReaction(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.Deploy("db", 1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "tight"} })
	f.Deploy("plain", 1)
	f.Deploy("off", 1)

	web := f.Pods("web")
	db := f.Pods("db")[0].Name
	plain := f.Pods("plain")[0].Name
	off := f.Pods("off")[0].Name
	hot := web[0].Name
	calm := web[1].Name

	recommendation := f.recommend("web", auto, "1", "512Mi")
	for _, rec := range []*analysisv1alpha1.Recommendation{
		recommendation, f.recommend("db", auto, "1", "512Mi"), f.recommend("off", analysisv1alpha1.AdoptionTypeStatusAndAnnotation, "1", "512Mi"),
	} {
		calibrate(t, rec)
	}

	f.recommend("plain", auto, "1", "512Mi")
	server := serveUsage(t, f.Name, map[string]float64{hot: hotCores, calm: 0.5, db: 3, plain: 3, off: 3})
	flags := []string{"--prometheus-address=" + server.URL(), "--adoption-reaction-interval=500ms"}

	dry := startCraned(t, append(flags, "--adoption-dry-run")...)
	f.Eventually("the dry run names the resize", func(ctx context.Context) error {
		rec := &analysisv1alpha1.Recommendation{}
		if err := admin.Get(ctx, client.ObjectKeyFromObject(recommendation), rec); err != nil {
			return err
		}

		if a := rec.Status.Adoption; a != nil {
			for _, request := range a.DryRun {
				if request.Object == "pods/"+hot+"/resize" && strings.Contains(request.Patch, `"cpu":"1950m"`) {
					return nil
				}
			}
		}

		return errors.New("no such request")
	})

	f.checkUntouched("web")
	dry.Stop(t)

	startCraned(t, flags...)
	f.AwaitPods("web", "have one raised request", checkCPU(map[string]int64{hot: 1950, calm: 1000}))
	f.awaitEvent("web", "AdoptionReacted")
	f.AwaitPods("db", "fill their node", func(pods []corev1.Pod) error {
		if got := pods[0].Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got <= 1000 || got > 2000 {
			return fmt.Errorf("requests %dm on a node of 2 cores", got)
		}

		return nil
	})

	for name, pod := range map[string]string{"plain": plain, "off": off} {
		if err := checkCPU(map[string]int64{pod: 1000})(f.Pods(name)); err != nil {
			t.Error(err)
		}
	}

	if s := f.state("web"); len(s.Raised) != 1 || s.Raised[0].Pod != hot || time.Until(s.Raised[0].Until) > time.Hour || s.Phase != adoption.Resting {
		t.Errorf("state %+v, want one raised pod, %s, for an hour", s, hot)
	}

	setAdoptionType(t, recommendation, analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	f.AwaitPods("web", "have their original requests", checkCPU(map[string]int64{hot: 1000, calm: 1000}))
	f.awaitStateRemoved()
}
