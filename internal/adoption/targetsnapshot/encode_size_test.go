// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// TestEncodeSize: DesiredSize decodes the result of EncodeSize, with sidecars and limits.
func TestEncodeSize(t *testing.T) {
	cpu := units.MilliCPU(250)
	memory := units.Bytes(100 << 20)
	limit := units.Bytes(300 << 20)
	size := adoption.Size{Containers: map[string]rightsize.Resources{
		"app": {CPURequest: &cpu, MemoryRequest: &memory, MemoryLimit: &limit}, "proxy": {CPURequest: &cpu},
	}}

	spec := &corev1.PodSpec{InitContainers: []corev1.Container{{Name: "proxy"}}, Containers: []corev1.Container{{Name: "app"}, {Name: "other"}}}
	value, info, err := EncodeSize("Deployment", spec, size)
	if err != nil {
		t.Fatal(err)
	}

	got, err := DesiredSize(recommended(value, info))
	if err != nil || !got.Equal(size) {
		t.Errorf("%s, %v, want %s", got, err, size)
	}
	if !strings.Contains(info, `"initContainers":[{"name":"proxy"`) || strings.Contains(info, "other") {
		t.Errorf("EncodeSize: info %s, want the init container proxy, and not the container other", info)
	}
	if _, info, err := EncodeSize("CronJob", spec, size); err != nil || !strings.HasPrefix(info, `{"spec":{"jobTemplate":{"spec":{"template":`) {
		t.Errorf("EncodeSize of a CronJob: info %s, error %v, want a patch of its Job template", info, err)
	}
}
