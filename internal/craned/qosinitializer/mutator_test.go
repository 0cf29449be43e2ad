// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qosinitializer

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

const good = `
apiVersion: ensurance.crane.io/v1alpha1
kind: QOSConfig
qosInitializer:
  enable: true
  selector: {matchLabels: {workload: batch}}
  initContainerTemplate: {name: qos, image: i, volumeMounts: [{name: cgroup, mountPath: /sys/fs/cgroup}]}
  volumeTemplate: {name: cgroup, hostPath: {path: /sys/fs/cgroup}}
`

func TestParse(t *testing.T) {
	if c, err := Parse([]byte(good)); err != nil || !c.enabled || c.initContainer.VolumeMounts[0].MountPath != "/sys/fs/cgroup" {
		t.Fatalf("Parse = %+v, %v, want an enabled initializer with the mount of the file", c, err)
	}

	if c, err := Parse([]byte(strings.Replace(good, "enable: true", "enable: false", 1))); err != nil || c.enabled {
		t.Errorf("Parse with enable: false = %+v, %v, want a disabled one", c, err)
	}

	for name, text := range map[string]string{
		"nothing":       "",
		"other kind":    strings.Replace(good, "QOSConfig", "PodQOS", 1),
		"unknown field": good + "  more: 1\n",
		"no selector":   strings.Replace(good, "  selector: {matchLabels: {workload: batch}}\n", "", 1),
		"bad selector":  strings.Replace(good, "{matchLabels: {workload: batch}}", "{matchLabels: {a: ' '}}", 1),
		"no image":      strings.Replace(good, "image: i, ", "", 1),
		"no volume":     strings.Replace(good, "name: cgroup, hostPath", "hostPath", 1),
		"not YAML":      "[",
	} {
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("Parse of a file with %s = nil, want an error", name)
		}
	}
}

func qos(priority *int32) *ensurancev1alpha1.PodQOS {
	return &ensurancev1alpha1.PodQOS{
		ObjectMeta: metav1.ObjectMeta{Name: "batch"},
		Spec: ensurancev1alpha1.PodQOSSpec{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"workload": "batch"}},
			ResourceQOS:   &ensurancev1alpha1.ResourceQOS{CPUQOS: &ensurancev1alpha1.CPUQOS{CPUPriority: priority}},
		},
	}
}

func TestMutate(t *testing.T) {
	config, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}

	batch := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload": "batch"}}}
	has := *batch.DeepCopy()
	has.Spec.InitContainers = []corev1.Container{{Name: "other"}}

	has.Spec.Volumes = []corev1.Volume{{Name: "cgroup"}}
	for name, test := range map[string]struct {
		config Config
		qos    []*ensurancev1alpha1.PodQOS
		pod    corev1.Pod
		want   []string // paths
	}{
		"batch":           {config, []*ensurancev1alpha1.PodQOS{qos(new(int32(7)))}, batch, []string{"/spec/initContainers", "/spec/volumes"}},
		"part is there":   {config, []*ensurancev1alpha1.PodQOS{qos(new(int32(1)))}, has, []string{"/spec/initContainers/-"}},
		"highest":         {config, []*ensurancev1alpha1.PodQOS{qos(new(int32(0)))}, batch, nil},
		"none said":       {config, []*ensurancev1alpha1.PodQOS{qos(nil)}, batch, nil},
		"no PodQOS":       {config, nil, batch, nil},
		"nothing in it":   {config, []*ensurancev1alpha1.PodQOS{{Spec: ensurancev1alpha1.PodQOSSpec{ScopeSelector: &ensurancev1alpha1.ScopeSelector{}}}}, batch, nil},
		"not selected":    {config, []*ensurancev1alpha1.PodQOS{qos(new(int32(7)))}, corev1.Pod{}, nil},
		"not switched on": {Config{}, []*ensurancev1alpha1.PodQOS{qos(new(int32(7)))}, batch, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := Mutator{Config: func() Config { return test.config }, PodQOSs: func() ([]*ensurancev1alpha1.PodQOS, error) { return test.qos, nil }}
			got, err := m.Mutate(&test.pod)
			if err != nil || len(got) != len(test.want) {
				t.Fatalf("%v, %v; want %v", got, err, test.want)
			}

			for i, op := range got {
				if op.Path != test.want[i] || op.Operation != "add" {
					t.Errorf("%v, want add %s", op, test.want[i])
				}
			}
		})
	}

	m := Mutator{Config: func() Config { return config }, PodQOSs: func() ([]*ensurancev1alpha1.PodQOS, error) { return nil, errors.New("not synced") }}
	if _, err := m.Mutate(&batch); err == nil {
		t.Error("Mutate without known PodQOSs = nil, want an error")
	}
}
