// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/oom"
	"crane.io/crane/test/integration/harness"
)

// readKills returns the recorded OOM kills of the namespace.
func (f *fixture) readKills(ctx context.Context) ([]oom.Kill, error) {
	var cm corev1.ConfigMap
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "crane-system", Name: "oom-record"}, &cm); err != nil {
		return nil, err
	}

	l, bad, err := oom.Parse(cm.Data["data"])
	if err != nil || len(bad) > 0 {
		return nil, fmt.Errorf("%w, %v", err, bad)
	}

	var out []oom.Kill
	for _, k := range l.Kills() {
		if k.Namespace == f.Name {
			out = append(out, k)
		}
	}

	return out, nil
}

// TestOOMRecorder checks that each OOM kill is recorded once, with its workload and memory, including a kill while craned was
// stopped, and that an unreadable record is set aside.
func TestOOMRecorder(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits = harness.ResourceList("", "512Mi")
	})

	kill := func(restarts int32) {
		t.Helper()

		load.set(f.Name, 600<<20)
		f.AwaitPods("web", "have been killed", func(pods []corev1.Pod) error {
			if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 || pods[0].Status.ContainerStatuses[0].RestartCount < restarts {
				return fmt.Errorf("statuses %+v", pods)
			}

			return nil
		})

		load.set(f.Name, 20<<20)
		f.AwaitReady("web", 1)
	}

	// craned is stopped during this kill. It reads the kill from the last state of the container.
	kill(1)
	first := startCraned(t)

	awaitKills := func(what string) []oom.Kill {
		t.Helper()

		var kills []oom.Kill
		f.Eventually(what, func(ctx context.Context) (err error) {
			if kills, err = f.readKills(ctx); err == nil && len(kills) == 0 {
				err = errors.New("no recorded kill")
			}

			return err
		})

		return kills
	}

	kills := awaitKills("the kill is recorded")
	if k := kills[len(kills)-1]; k.Container != "app" || k.Memory != 512<<20 || k.Owner.Kind != "Deployment" || k.Owner.Name != "web" || k.Cause != oom.Killed {
		t.Errorf("the last kill is %+v, want container app of Deployment web with 512Mi killed", k)
	}

	first.Kill()
	startCraned(t)

	// An unreadable record is copied to another ConfigMap. Kills that the pods still report are recorded again.
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = "crane-system", "oom-record"

	// A patch without a resource version overwrites concurrent writes of craned.
	if err := admin.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"data":"please do not touch"}}`))); err != nil {
		t.Fatal(err)
	}

	kill(2)
	awaitKills("the kills are recorded again")

	aside := &corev1.ConfigMap{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "crane-system", Name: "oom-record-unreadable"}, aside); err != nil {
		t.Fatal(err)
	}

	if text := fmt.Sprint(aside.Data); !strings.Contains(text, "please do not touch") {
		t.Errorf("copy of the unreadable record: %s, want the original text", text)
	}
	// A second one is added to the same ConfigMap.
	if err := admin.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"data":"nor this"}}`))); err != nil {
		t.Fatal(err)
	}

	kill(3)
	f.Eventually("both unreadable records are set aside", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(aside), aside); err != nil {
			return err
		}

		if text := fmt.Sprint(aside.Data); !strings.Contains(text, "please do not touch") || !strings.Contains(text, "nor this") {
			return fmt.Errorf("copies: %s", text)
		}

		return nil
	})

	ids := map[string]bool{}
	for _, k := range awaitKills("the kills are recorded") {
		if ids[k.ID] {
			t.Errorf("%+v is recorded twice, want once", k)
		}
		ids[k.ID] = true
	}
}
