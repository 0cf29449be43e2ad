// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/test/integration/harness"
)

// TestOptOutList checks that craned publishes the workloads with the opt-out label, for agents, as long as they have it.
func TestOptOutList(t *testing.T) {
	f := newFixture(t)
	f.Deploy("quiet", 1)
	f.Deploy("other", 1)
	startCraned(t)

	label := func(value string) {
		t.Helper()

		d, err := f.deployment(t.Context(), "quiet")
		if err != nil {
			t.Fatal(err)
		}

		before := d.DeepCopy()
		if d.Labels == nil {
			d.Labels = map[string]string{}
		}

		d.Labels["crane.io/opt-out"] = value
		if err := admin.Patch(t.Context(), d, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}

	await := func(want bool) {
		t.Helper()

		key := client.ObjectKey{Namespace: "crane-system", Name: optout.ConfigMapName}
		harness.Eventually(t.Context(), t, waitTimeout, fmt.Sprintf("listed: %t", want), func(ctx context.Context) error {
			var cm corev1.ConfigMap
			if err := admin.Get(ctx, key, &cm); err != nil {
				return err
			}

			list := cm.Data[optout.KeyWorkloads]
			if got := strings.Contains(list, "Deployment "+f.Key("quiet").String()+"\n"); got != want || strings.Contains(list, f.Key("other").String()) {
				return fmt.Errorf("the list is %q", list)
			}

			return nil
		})
	}

	await(false)
	label("true")
	await(true)
	label("false")
	await(false)
}
