// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"crane.io/crane/internal/kube/pause"
)

func TestSetPaused(t *testing.T) {
	api := fake.NewClientset()
	for _, paused := range []bool{true, false, true} {
		if err := setPaused(t.Context(), io.Discard, api, "crane-system", paused, "why"); err != nil {
			t.Fatal(err)
		}

		cm, err := api.CoreV1().ConfigMaps("crane-system").Get(t.Context(), pause.ConfigMapName, metav1.GetOptions{})
		if err != nil || (cm.Data[pause.KeyPaused] == "true") != paused || cm.Data[pause.KeyReason] != "why" {
			t.Errorf("%+v, %v, want paused %v", cm, err, paused)
		}
	}
}
