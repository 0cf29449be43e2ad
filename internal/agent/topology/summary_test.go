// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"
)

func TestSummarize(t *testing.T) {
	files := twoZoneFiles()
	files["var/lib/kubelet/config.yaml"] = "kind: KubeletConfiguration\nkubeReserved: {cpu: 1500m, memory: 1Gi}\nevictionHard: {memory.available: 1Gi}\n"
	root := writeHost(t, files)

	summary := Summarize(t.Context(), root, &KubeletReader{Root: root, Dir: kubeletDir}, nil) // as --once without an API server
	want := "[[node0 0-3,8-10 4 5.5 16384 MiB 14336 MiB 10 21] [node2 4-7,12-14 4 7 8192 MiB 7168 MiB 21 10]]"
	if got := fmt.Sprint(summary.Rows()); got != want || summary.ReservedCPUs != "0,8" || summary.KubeletSource != "/var/lib/kubelet/config.yaml" || len(summary.Problems) > 0 {
		t.Errorf("%s\nwant %s\n%+v", got, want, summary)
	}

	delete(files, "var/lib/kubelet/config.yaml")
	root = writeHost(t, files)

	summary = Summarize(t.Context(), root, newTestReader(root, nil), nil)
	if rows := summary.Rows(); rows[0][3] != "unknown" || rows[0][5] != "unknown" || !strings.Contains(strings.Join(summary.Problems, ""), "configuration is unknown") {
		t.Errorf("Summarize = %+v, want unknown usable amounts and the unknown configuration as problem", summary)
	}

	root = writeHost(t, nil)
	if summary := Summarize(t.Context(), root, newTestReader(root, nil), nil); len(summary.Zones) != 0 || len(summary.Problems) != 1 {
		t.Errorf("Summarize = %+v, want no zone and one problem", summary)
	}
}

// TestSummarizeQueriesKubelet checks that the kubelet is queried, and that its file and the reason are reported if it does not answer.
func TestSummarizeQueriesKubelet(t *testing.T) {
	files := twoZoneFiles()
	files["var/lib/kubelet/config.yaml"] = "kind: KubeletConfiguration\nkubeReserved: {cpu: 1500m, memory: 1Gi}\nevictionHard: {memory.available: 1Gi}\n"
	root := writeHost(t, files)
	k := newKubelet(t)
	k.setResponse(http.StatusOK, `{"kubeletconfig":{"reservedSystemCPUs":"0","evictionHard":{"memory.available":"50%"}}}`)
	node := k.node()
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("11Gi")}
	kubelet := func() *KubeletReader {
		return &KubeletReader{Root: root, Dir: kubeletDir, Client: k.client(t, k.authority()), Clock: clock.RealClock{}}
	}

	summary := Summarize(t.Context(), root, kubelet(), node)
	want := "[[node0 0-3,8-10 4 6 16384 MiB 4096 MiB 10 21] [node2 4-7,12-14 4 7 8192 MiB 7168 MiB 21 10]]"
	if got := fmt.Sprint(summary.Rows()); got != want || summary.ReservedCPUs != "0" || summary.KubeletSource != "the kubelet (/configz)" || len(summary.Problems) > 0 {
		t.Errorf("%s\nwant %s\n%+v", got, want, summary)
	}

	k.setResponse(http.StatusForbidden, "no")
	summary = Summarize(t.Context(), root, kubelet(), node)
	problems := strings.Join(summary.Problems, "; ")
	if summary.KubeletSource != "/var/lib/kubelet/config.yaml" || !strings.Contains(problems, "its file is used, which lacks flags and drop-in files: the kubelet refuses: 403") ||
		!strings.Contains(problems, "21504 MiB of the zones' memory are allocatable, but 11264 MiB") {
		t.Errorf("Summarize = %+v, want the file's configuration, and the refusal and the difference as problems", summary)
	}
}
