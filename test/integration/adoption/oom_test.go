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
)

// records are the kills of a namespace in the ledger.
func records(ctx context.Context, ns string) ([]oom.Kill, error) {
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
		if k.Namespace == ns {
			out = append(out, k)
		}
	}
	return out, nil
}

// TestOOMRecorder: a kill is on record once, with its workload and its memory, also when craned was away while it happened,
// and when somebody has written nonsense into the ledger.
func TestOOMRecorder(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits = requests("", "512Mi")
	})
	restarts := func(want int32) {
		t.Helper()
		load.turn(ns, 600<<20)
		podsUntil(t, ns, "web", "killed", func(pods []corev1.Pod) error {
			if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 || pods[0].Status.ContainerStatuses[0].RestartCount < want {
				return errors.New("not yet")
			}
			return nil
		})
		load.turn(ns, 20<<20)
		podsUntil(t, ns, "web", "ready again", func(pods []corev1.Pod) error { return ready(pods, 1) })
	}
	// While nobody watches: the last state shows it.
	restarts(1)
	first := startCraned(t)
	onRecord := func(what string) []oom.Kill {
		t.Helper()
		var kills []oom.Kill
		eventually(t, what, func(ctx context.Context) (err error) {
			if kills, err = records(ctx, ns); err == nil && len(kills) == 0 {
				err = errors.New("there is none")
			}
			return err
		})
		return kills
	}
	kills := onRecord("the kill is on record")
	if k := kills[len(kills)-1]; k.Container != "app" || k.Memory != 512<<20 || k.Owner.Kind != "Deployment" || k.Owner.Name != "web" || k.Cause != oom.Killed {
		t.Errorf("%+v", k)
	}
	first.Kill()
	startCraned(t)
	// Nonsense is put aside; what is still to be seen is recorded again.
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = "crane-system", "oom-record"
	// Whatever craned writes meanwhile.
	if err := admin.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"data":"please do not touch"}}`))); err != nil {
		t.Fatal(err)
	}
	restarts(2)
	eventually(t, "another kill is on record", func(ctx context.Context) error {
		kills, err := records(ctx, ns)
		if err == nil && len(kills) < 1 {
			err = fmt.Errorf("%d", len(kills))
		}
		return err
	})
	aside := &corev1.ConfigMap{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "crane-system", Name: "oom-record-unreadable"}, aside); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(aside.Data); !strings.Contains(text, "please do not touch") {
		t.Errorf("put aside: %s", text)
	}
	kills = onRecord("kills are on record")
	ids := map[string]bool{}
	for _, k := range kills {
		if ids[k.ID] {
			t.Errorf("%+v is there twice", k)
		}
		ids[k.ID] = true
	}
}
