// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/kube/manifest"
)

// TestExamplesOfGocrane applies gocrane's examples beside the Deployment that they name, in a time zone in which it is seven o'clock:
// the schedules in local time then ask for 100 replicas, of which maxReplicas allows 10.
func TestExamplesOfGocrane(t *testing.T) {
	const folder = "../../../../shared/gocrane/examples/autoscaling"
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("gocrane's examples are not beside the repository: %v", err)
	}

	ahead := 7 - time.Now().UTC().Hour()
	if ahead < -12 {
		ahead += 24
	}

	t.Setenv("TZ", fmt.Sprintf("Etc/GMT%+d", -ahead)) // The sign of these names is that of POSIX.
	for name, floor := range map[string]int32{
		"effective-hpa-cron-local.yaml": 10, "effective-hpa-cron.yaml": 10, "effective-hpa-cron-shanghai.yaml": 0, "effective-hpa.yaml": 1,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, "--ehpa-cron-local-time")
			apply := func(file string) string {
				t.Helper()

				data, err := os.ReadFile(filepath.Join(folder, file))
				if err != nil {
					t.Fatal(err)
				}

				objects, err := manifest.ParseString(string(data))
				if err != nil {
					t.Fatal(err)
				}

				for _, o := range objects {
					o.SetNamespace(f.Name)
					if err := f.Create(t.Context(), client.Object(o)); err != nil {
						t.Fatal(err)
					}
				}

				return objects[0].GetName()
			}

			metrics.setSharedLoad(f.Name, 10)
			apply("php-apache.yaml")
			ehpa := apply(name)

			e := f.awaitCondition(ehpa, "Ready=True/EffectiveHorizontalPodAutoscalerReady")
			if len(e.Spec.Crons) > 0 && !meta.IsStatusConditionTrue(e.Status.Conditions, autoscalingv1alpha1.ConditionCronReady) {
				t.Errorf("conditions %+v, want CronReady", e.Status.Conditions)
			}

			if floor == 0 {
				return // It depends on the time of day.
			}

			f.Eventually(fmt.Sprintf("a floor of %d", floor), func(ctx context.Context) error {
				h := &autoscalingv2.HorizontalPodAutoscaler{}
				if err := f.Get(ctx, f.Key("ehpa-"+ehpa), h); err != nil {
					return err
				}

				if *h.Spec.MinReplicas != floor {
					return fmt.Errorf("the floor is %d", *h.Spec.MinReplicas)
				}

				return nil
			})
		})
	}
}
