// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/kubeletsocket"
)

const kubeletDir = "/var/lib/kubelet"

func newTestReader(root host.Root, client *KubeletClient) *KubeletReader {
	return &KubeletReader{Root: root, Dir: kubeletDir, Client: client, Clock: testingclock.NewFakePassiveClock(time.Unix(1000, 0))}
}

func TestKubeletFile(t *testing.T) {
	files := map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}
	r := newTestReader(writeHost(t, files), nil)
	if k, err := r.Read(t.Context(), nil); err != nil || k.Static || k.Source != "/var/lib/kubelet/config.yaml" {
		t.Errorf("Read = %+v, %v, want the file without static policy", k, err)
	}

	// A policy set by the flag --cpu-manager-policy is only in the state file.
	files["var/lib/kubelet/cpu_manager_state"] = `{"policyName":"static","defaultCpuSet":"0-3"}`

	r.Root = writeHost(t, files)
	if k, err := r.Read(t.Context(), nil); err != nil || !k.Static || !strings.Contains(k.Source, "cpu_manager_state") {
		t.Errorf("Read = %+v, %v, want the static policy of cpu_manager_state", k, err)
	}

	files["var/lib/kubelet/memory_manager_state"] = `{"policyName":"Static","machineState":{}}`
	r.Root = writeHost(t, files)
	if k, err := r.Read(t.Context(), nil); err != nil || !k.StaticMemory || !strings.Contains(k.Source, "memory_manager_state") {
		t.Errorf("Read = %+v, %v, want the static policy of memory_manager_state", k, err)
	}

	files["var/lib/kubelet/config.yaml"] = "kind: KubeletConf"
	r.Root = writeHost(t, files)
	if k, err := r.Read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "/var/lib/kubelet/config.yaml") {
		t.Errorf("Read of half a file = %+v, %v, want an error that names it", k, err)
	}

	files["var/lib/kubelet/config.yaml"] = strings.Repeat("#", maxConfigurationBytes+1)
	r.Root = writeHost(t, files)
	if k, err := r.Read(t.Context(), nil); err == nil {
		t.Errorf("Read of a too large file = %+v, want an error", k)
	}

	r.Root = writeHost(t, map[string]string{"var/lib/kubelet/config.yaml/directory": ""})
	if k, err := r.Read(t.Context(), nil); err == nil {
		t.Errorf("Read of a directory = %+v, want an error", k)
	}

	r.Root = writeHost(t, map[string]string{"etc/kubernetes/kubelet.json": `{"kind":"KubeletConfiguration","cpuManagerPolicy":"static"}`})
	r.File = "/etc/kubernetes/kubelet.json"
	if k, err := r.Read(t.Context(), nil); err != nil || !k.Static || k.Source != "/etc/kubernetes/kubelet.json" {
		t.Errorf("Read of another file = %+v, %v, want its static policy", k, err)
	}

	r.Root = writeHost(t, nil)
	r.File = ""
	if k, err := r.Read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no API server (--kubeconfig)") {
		t.Errorf("Read without a file = %+v, %v, want an error that names --kubeconfig", k, err)
	}
}

// TestConfigzTakesPrecedence checks that the kubelet's answer overrides its file, is refreshed at intervals, and stays valid while the
// kubelet does not answer.
func TestConfigzTakesPrecedence(t *testing.T) {
	k := newKubelet(t)
	root := writeHost(t, map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\nreservedSystemCPUs: \"7\"\n"})
	r := newTestReader(root, k.client(t, k.authority()))
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	r.Clock = clock

	read := func(reserved, source string) {
		t.Helper()

		got, err := r.Read(t.Context(), k.node())
		if err != nil || got.ReservedCPUs.String() != reserved || !strings.Contains(got.Source, source) {
			t.Errorf("%+v, %v, want %s by %s", got, err, reserved, source)
		}
	}

	// The file is not used before the kubelet could be queried.
	if got, err := r.Read(t.Context(), nil); err == nil {
		t.Errorf("Read before the node is known = %+v, want an error", got)
	}

	for range 3 {
		read("0", "/configz")
	}

	if n := len(k.requestLog()); n != 1 {
		t.Errorf("the kubelet got %d requests, want 1 within the interval", n)
	}

	// The kubelet also returns Unauthorized while it cannot reach the API server.
	for _, status := range []int{http.StatusInternalServerError, http.StatusUnauthorized, http.StatusForbidden} {
		clock.SetTime(clock.Now().Add(kubeletQueryInterval))
		k.setResponse(status, "no")
		read("0", "/configz")

		if r.LastError() == nil {
			t.Errorf("status %d: LastError() = nil, want the error of the query", status)
		}
	}

	clock.SetTime(clock.Now().Add(kubeletQueryInterval))
	k.setResponse(http.StatusOK, `{}`)
	read("0", "/configz")
	clock.SetTime(clock.Now().Add(kubeletQueryInterval))
	k.setResponse(http.StatusOK, `{"kubeletconfig":{"reservedSystemCPUs":"1"}}`)
	read("1", "/configz")

	if err := r.LastError(); err != nil {
		t.Error(err)
	}
}

// TestKubeletRestart checks that a restarted kubelet is queried at once, until it answers.
func TestKubeletRestart(t *testing.T) {
	k := newKubelet(t)
	root := writeHost(t, map[string]string{"var/lib/kubelet/pod-resources/kubelet.sock": ""})
	r := newTestReader(root, k.client(t, k.authority()))
	read := func(reserved string) {
		t.Helper()

		if got, err := r.Read(t.Context(), k.node()); err != nil || got.ReservedCPUs.String() != reserved {
			t.Errorf("%+v, %v, want %s", got, err, reserved)
		}
	}

	read("0")
	k.setResponse(http.StatusServiceUnavailable, "not yet")
	read("0")

	if n := len(k.requestLog()); n != 1 {
		t.Errorf("the kubelet got %d requests, want 1 within the interval", n)
	}
	if err := os.Chtimes(root.Path(kubeletDir, kubeletsocket.Path), time.Time{}, time.Unix(2000, 0)); err != nil {
		t.Fatal(err)
	}

	read("0")
	k.setResponse(http.StatusOK, `{"kubeletconfig":{"reservedSystemCPUs":"1"}}`)
	read("1")
	read("1")

	if n := len(k.requestLog()); n != 3 {
		t.Errorf("the kubelet got %d requests, want 3: its restart allows another query at once", n)
	}
}

// TestKubeletRefuses checks that the file of a kubelet that never answered is used and the reason reported.
func TestKubeletRefuses(t *testing.T) {
	k := newKubelet(t)
	k.setResponse(http.StatusForbidden, "Forbidden")

	r := newTestReader(writeHost(t, map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\nreservedSystemCPUs: \"7\"\n"}), k.client(t, k.authority()))
	for range 3 {
		if got, err := r.Read(t.Context(), k.node()); err != nil || got.ReservedCPUs.String() != "7" || got.Source != "/var/lib/kubelet/config.yaml" {
			t.Errorf("Read = %+v, %v, want CPU 7 of the file", got, err)
		}
	}

	if err := r.LastError(); err == nil || !strings.Contains(err.Error(), "right to get nodes/configz") {
		t.Errorf("LastError() = %v, want one that names the right to get nodes/configz", err)
	}
	if n := len(k.requestLog()); n != 1 {
		t.Errorf("the refusing kubelet got %d requests, want 1 within the interval", n)
	}

	r = newTestReader(writeHost(t, nil), k.client(t, k.authority()))
	if got, err := r.Read(t.Context(), k.node()); err == nil || !strings.Contains(err.Error(), "there is no /var/lib/kubelet/config.yaml, and the kubelet refuses: 403") {
		t.Errorf("Read without a file = %+v, %v, want an error with the path and the refusal", got, err)
	}
}

// TestKubeletAnswerStays checks that the next agent has the kubelet's last answer, flags included, before the API server tells it where the
// kubelet is, and that the file has no field that is not read.
func TestKubeletAnswerStays(t *testing.T) {
	k := newKubelet(t)
	k.setResponse(http.StatusOK, `{"kubeletconfig":{"reservedSystemCPUs":"3","cgroupDriver":"systemd","staticPodURLHeader":{"Authorization":["secret"]}}}`)
	root := writeHost(t, map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"})
	path := filepath.Join(t.TempDir(), AnswerFile)

	r := newTestReader(root, k.client(t, k.authority()))
	r.AnswerPath = path
	if _, err := r.Read(t.Context(), k.node()); err != nil || r.LastError() != nil {
		t.Fatalf("Read = %v with %v, want nil", err, r.LastError())
	}

	content, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(content), "secret") {
		t.Errorf("the file has %s, %v, want the fields that are read alone", content, err)
	}

	next := func(path string) (KubeletConfig, error) {
		r := newTestReader(root, k.client(t, k.authority()))
		r.AnswerPath = path
		return r.Read(t.Context(), nil)
	}
	if got, err := next(path); err != nil || got.ReservedCPUs.String() != "3" || !strings.Contains(got.Source, path) {
		t.Errorf("Read without a known node = %+v, %v, want CPU 3 by %s", got, err, path)
	}

	for name, text := range map[string]string{"damaged": string(content[:len(content)/2]), "empty": ""} {
		bad := filepath.Join(t.TempDir(), AnswerFile)
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := next(bad); err == nil {
			t.Errorf("Read with a file that is %s = %+v, want an error: the kubelet's configuration is unknown", name, got)
		}
	}
}

// TestKubeletAnswerNotSaved checks that an answer that cannot be kept for the next agent is used all the same, and that its query has not failed.
func TestKubeletAnswerNotSaved(t *testing.T) {
	k := newKubelet(t)
	k.setResponse(http.StatusOK, `{"kubeletconfig":{"reservedSystemCPUs":"3"}}`)
	r := newTestReader(writeHost(t, map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}), k.client(t, k.authority()))
	r.AnswerPath = filepath.Join(t.TempDir(), "missing", AnswerFile)

	got, err := r.Read(t.Context(), k.node())
	if err != nil || got.ReservedCPUs.String() != "3" || r.LastError() != nil || r.SaveError() == nil {
		t.Errorf("Read = %+v, %v with LastError %v and SaveError %v, want CPU 3 and only a SaveError", got, err, r.LastError(), r.SaveError())
	}
}

// TestKubeletStateUnreadable checks that a state file that cannot be read leaves the policy unknown.
func TestKubeletStateUnreadable(t *testing.T) {
	for _, content := range []string{"", "{", `{"policyName":1}`} {
		r := newTestReader(writeHost(t, map[string]string{
			"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n", "var/lib/kubelet/cpu_manager_state": content,
		}), nil)
		if k, err := r.Read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "policy is unknown") {
			t.Errorf("Read with cpu_manager_state %q = %+v, %v, want an unknown policy", content, k, err)
		}
	}
}

// TestKubeletReader_Socket checks that the kubelet's socket has the policies where its state files are not visible.
func TestKubeletReader_Socket(t *testing.T) {
	const config = "var/lib/kubelet/config.yaml"

	for _, c := range []struct {
		name        string
		files       map[string]string
		assignments kubeletsocket.Assignments
		err         error
		wantStatic  bool
		wantMemory  bool
		wantErr     string
	}{
		{name: "none", assignments: kubeletsocket.Assignments{}},
		{name: "static", assignments: kubeletsocket.Assignments{StaticCPUs: true, StaticMemory: true}, wantStatic: true, wantMemory: true},
		{name: "no kubelet", err: fs.ErrNotExist},
		{name: "no answer", err: errors.New("no answer"), wantErr: "the kubelet's policy is unknown: no answer"},
		{
			name: "state files", files: map[string]string{
				"var/lib/kubelet/cpu_manager_state": `{"policyName":"none"}`, "var/lib/kubelet/memory_manager_state": `{"policyName":"Static"}`,
			}, err: errors.New("no answer"), wantMemory: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{config: `{"kind":"KubeletConfiguration"}`}
			maps.Copy(files, c.files)
			r := newTestReader(writeHost(t, files), nil)
			r.Assignments = func() (kubeletsocket.Assignments, error) { return c.assignments, c.err }

			got, err := r.Read(t.Context(), nil)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("Read() = %v, want %q", err, c.wantErr)
				}
				return
			}
			if err != nil || got.Static != c.wantStatic || got.StaticMemory != c.wantMemory {
				t.Errorf("Read() = static %t, memory %t, %v, want %t, %t", got.Static, got.StaticMemory, err, c.wantStatic, c.wantMemory)
			}
			if c.name == "static" && !strings.Contains(got.Source, "with policy static by its socket") {
				t.Errorf("Read() has source %q, want it to name the socket", got.Source)
			}
		})
	}
}
