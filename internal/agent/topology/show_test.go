// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"strings"
	"testing"
)

func TestSee(t *testing.T) {
	files := twoZones()
	files["var/lib/kubelet/config.yaml"] = "kind: KubeletConfiguration\nkubeReserved: {cpu: 1500m, memory: 1Gi}\nevictionHard: {memory.available: 1Gi}\n"
	root := hostWith(t, files)
	seen := See(t.Context(), root, &KubeletReader{Root: root, Dir: kubeletDir}) // as --once has it
	want := "[[node0 0-3,8-10 4 5.5 16384 MiB 14336 MiB 10 21] [node2 4-7,12-14 4 7 8192 MiB 7168 MiB 21 10]]"
	if got := fmt.Sprint(seen.Rows()); got != want || seen.ReservedCPUs != "0,8" || seen.KubeletSource != "/var/lib/kubelet/config.yaml" || len(seen.Problems) > 0 {
		t.Errorf("%s\nwant %s\n%+v", got, want, seen)
	}
	delete(files, "var/lib/kubelet/config.yaml")
	root = hostWith(t, files)
	seen = See(t.Context(), root, reader(root, nil))
	if rows := seen.Rows(); rows[0][3] != "unknown" || rows[0][5] != "unknown" || !strings.Contains(strings.Join(seen.Problems, ""), "configuration is not known") {
		t.Errorf("%+v", seen)
	}
	root = hostWith(t, nil)
	if seen := See(t.Context(), root, reader(root, nil)); len(seen.Zones) != 0 || len(seen.Problems) != 1 {
		t.Errorf("%+v", seen)
	}
}
