// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/host"
)

const kubeletDir = "/var/lib/kubelet"

func TestParseKubelet(t *testing.T) {
	k := kubelet(t, "cpuManagerPolicy: static\nkubeReserved: {cpu: 500m, memory: 1Gi}\nsystemReserved: {cpu: \"1\"}\nreservedSystemCPUs: 0-1\nnewField: {a: [b]}\n")
	cpu, memory := k.Reserved["cpu"], k.Reserved["memory"]
	if !k.Static || cpu.String() != "2" || memory.String() != "1Gi" || k.ReservedCPUs.String() != "0-1" {
		t.Errorf("%+v", k)
	}
	for want, text := range map[string]string{
		"kind is":            "kind: Pod\n",
		"kubeReserved":       "kind: KubeletConfiguration\nkubeReserved: {cpu: -1}\n",
		"of the order of":    "kind: KubeletConfiguration\nkubeReserved: {memory: 1e999999999}\n",
		"systemReserved":     "kind: KubeletConfiguration\nsystemReserved: {memory: much}\n",
		"out of range":       "kind: KubeletConfiguration\nkubeReserved: {memory: 1Pi}\nsystemReserved: {memory: 1Ki}\n",
		"reservedSystemCPUs": "kind: KubeletConfiguration\nreservedSystemCPUs: 3-1\n",
		"no configuration":   "kind: [",
	} {
		if k, err := ParseKubelet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q", text, k, err, want)
		}
	}
}

func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte("kind: KubeletConfiguration\nkubeReserved: {cpu: 500m, memory: 1Gi}\nreservedSystemCPUs: 0-1\n"))
	f.Add([]byte(`{"kubeletconfig":{"cpuManagerPolicy":"static"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, parse := range []func([]byte) (Kubelet, error){ParseKubelet, parseConfigz} {
			k, err := parse(content)
			if err != nil {
				continue
			}
			facts := Facts{Machine: &Machine{Zones: []Zone{{Memory: 1 << 30}}}, Kubelet: k}
			for _, q := range facts.Build().Reserved {
				if q.Sign() < 0 {
					t.Fatalf("%q reserves %s", content, q.String())
				}
			}
		}
	})
}

func reader(root host.Root, client kubernetes.Interface) *KubeletReader {
	return &KubeletReader{Root: root, Dir: kubeletDir, Client: client, Node: "n", Clock: testingclock.NewFakePassiveClock(time.Unix(0, 0))}
}

func TestKubeletFile(t *testing.T) {
	files := map[string]string{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}
	r := reader(hostWith(t, files), nil)
	if k, err := r.Read(t.Context()); err != nil || k.Static || k.Source != "/var/lib/kubelet/config.yaml" {
		t.Errorf("%+v, %v", k, err)
	}
	// A kubelet that was started with --cpu-manager-policy says so in its state file alone.
	files["var/lib/kubelet/cpu_manager_state"] = `{"policyName":"static","defaultCpuSet":"0-3"}`
	r.Root = hostWith(t, files)
	if k, err := r.Read(t.Context()); err != nil || !k.Static || !strings.Contains(k.Source, "cpu_manager_state") {
		t.Errorf("%+v, %v", k, err)
	}
	files["var/lib/kubelet/config.yaml"] = "kind: KubeletConf"
	r.Root = hostWith(t, files)
	if k, err := r.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "/var/lib/kubelet/config.yaml") {
		t.Errorf("half a file: %+v, %v", k, err)
	}
	files["var/lib/kubelet/config.yaml"] = strings.Repeat("#", maxConfiguration+1)
	r.Root = hostWith(t, files)
	if k, err := r.Read(t.Context()); err == nil {
		t.Errorf("a file without an end: %+v", k)
	}
	r.Root = hostWith(t, map[string]string{"var/lib/kubelet/config.yaml/directory": ""})
	if k, err := r.Read(t.Context()); err == nil {
		t.Errorf("a directory: %+v", k)
	}
	r.Root, r.File = hostWith(t, map[string]string{"etc/kubernetes/kubelet.json": `{"kind":"KubeletConfiguration","cpuManagerPolicy":"static"}`}), "/etc/kubernetes/kubelet.json"
	if k, err := r.Read(t.Context()); err != nil || !k.Static || k.Source != "/etc/kubernetes/kubelet.json" {
		t.Errorf("a file elsewhere: %+v, %v", k, err)
	}
	r.Root, r.File = hostWith(t, nil), ""
	if k, err := r.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "no API server to ask") {
		t.Errorf("nothing: %+v, %v", k, err)
	}
}

// TestConfigz: without a file the API server is asked, and not each time.
func TestConfigz(t *testing.T) {
	asked, answer, status := 0, `{"kubeletconfig":{"cpuManagerPolicy":"static","reservedSystemCPUs":"0"}}`, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/n/proxy/configz" {
			t.Errorf("asks for %s", r.URL)
		}
		asked++
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	r := reader(hostWith(t, nil), client)
	r.Clock = clock
	for range 3 {
		if k, err := r.Read(t.Context()); err != nil || !k.Static || k.Source != "nodes/n/proxy/configz" || k.ReservedCPUs.String() != "0" {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	clock.SetTime(clock.Now().Add(askAgain))
	answer = `{}`
	if k, err := r.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "has no kubeletconfig") {
		t.Errorf("%+v, %v", k, err)
	}
	answer, status = `forbidden`, http.StatusForbidden
	if k, err := r.Read(t.Context()); err == nil || !strings.Contains(err.Error(), "nodes/n/proxy/configz") || !strings.Contains(err.Error(), "there is no /var/lib/kubelet/config.yaml") {
		t.Errorf("%+v, %v", k, err)
	}
}
