// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSplitConfig: with a split configuration no file contains all of it, and none is at the usual path.
func TestSplitConfig(t *testing.T) {
	o := NodeOptions{ReservedCPUs: "1", Reserved: corev1.ResourceList{"memory": resource.MustParse("64Mi")}}
	files, flags, err := kubeletFiles(o, false)
	if err != nil || !slices.Equal(flags, []string{"--config", kubeletConfig}) || !strings.Contains(files[kubeletConfig].Content, `"reservedSystemCPUs":"1"`) ||
		!strings.Contains(files[kubeletConfig].Content, `"systemReserved":{"memory":"64Mi"}`) {
		t.Errorf("kubeletFiles() = %v, %v, error %v; want one file with both reserves, and --config", files, flags, err)
	}

	o.SplitConfig = true
	if files, flags, err = kubeletFiles(o, false); err != nil || len(files) != 2 {
		t.Fatalf("kubeletFiles() with SplitConfig = %v, error %v; want 2 files", files, err)
	}

	if file := files[splitConfig].Content; !strings.Contains(file, "KubeletConfiguration") || strings.Contains(file, "reservedSystemCPUs") || strings.Contains(file, "64Mi") {
		t.Errorf("main file = %s, want a KubeletConfiguration without reserves", file)
	}

	const dropIn = `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","reservedSystemCPUs":"1"}`
	if got := files[dropInDir+"/10-reserved.conf"].Content; got != dropIn {
		t.Errorf("drop-in file = %s, want %s", got, dropIn)
	}
	if want := []string{"--config", splitConfig, "--config-dir", dropInDir, "--system-reserved", "memory=64Mi"}; !slices.Equal(flags, want) {
		t.Errorf("flags = %q, want %q", flags, want)
	}
}
