// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodeload measures craned's node-load controller on a real API server with thousands of nodes: queries, patches,
// CPU and memory, at the start, when every node is written, and after it. Prometheus is played: it answers each query with
// one series for each node, whose load wanders by a point from reading to reading.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
)

func main() {
	nodes := flag.Int("nodes", 5000, "number of nodes")
	lasting := flag.Duration("for", 7*time.Minute, "how long to look after the start; the usual policy reads every 3 minutes")
	bin := flag.String("bin", "bin", "directory of craned and controlplane")
	flag.Parse()

	if err := run(context.Background(), *nodes, *lasting, *bin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// answers is the Prometheus that is played. It counts queries.
type answers struct {
	nodes   int
	queries atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
	levels map[string][]float64
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.FormValue("query")
	if query == "vector(1)" { // readiness
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}`))
		return
	}

	a.queries.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()

	if strings.Contains(query, "timestamp(") || strings.Contains(query, "_sample_time_seconds") {
		a.writeTimes(w)
		return
	}

	level := a.levels[query]
	if level == nil {
		level = make([]float64, a.nodes)
		for i := range level {
			level[i] = 10 + 50*a.random.Float64()
		}
		a.levels[query] = level
	}

	var b strings.Builder
	b.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)

	for i := range level {
		level[i] = max(0, level[i]+a.random.NormFloat64())
		if i > 0 {
			b.WriteByte(',')
		}

		fmt.Fprintf(&b, `{"metric":{"instance":"node-%d:9100","job":"node-exporter"},"value":[1,"%.6f"]}`, i, level[i])
	}

	b.WriteString(`]}}`)
	_, _ = w.Write([]byte(b.String()))
}

// writeTimes writes the times of the newest samples, which are half a minute old.
func (a *answers) writeTimes(w io.Writer) {
	var b strings.Builder
	b.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)

	for i := range a.nodes {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metric":{"instance":"node-%d:9100"},"value":[1,"%d"]}`, i, time.Now().Add(-30*time.Second).Unix())
	}

	b.WriteString(`]}}`)
	_, _ = io.WriteString(w, b.String())
}

func run(ctx context.Context, nodes int, lasting time.Duration, bin string) (err error) {
	dir, err := os.MkdirTemp("", "bench-nodeload-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	control, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: filepath.Join(bin, "controlplane")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, control.Stop(context.WithoutCancel(ctx))) }()

	config := control.Config()
	// The client must not be the bottleneck of the set-up.
	config.QPS, config.Burst = 2000, 2000
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	began := time.Now()
	if err := makeNodes(ctx, clients, nodes); err != nil {
		return err
	}

	fmt.Printf("%d nodes made in %v\n", nodes, time.Since(began).Round(time.Second))
	source := &answers{nodes: nodes, random: rand.New(rand.NewPCG(1, 2)), levels: map[string][]float64{}}
	server := httptest.NewServer(source)
	defer server.Close()

	return measure(ctx, control, source, server.URL, filepath.Join(bin, "craned"), lasting)
}

// makeNodes makes nodes with the fifty images that a kubelet reports.
func makeNodes(ctx context.Context, clients kubernetes.Interface, n int) error {
	status := corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi")}}
	for i := range 50 {
		name := fmt.Sprintf("registry.example/team/service-%d@sha256:%064d", i, i)
		status.Images = append(status.Images, corev1.ContainerImage{Names: []string{name, name + "-tag"}, SizeBytes: 1 << 28})
	}

	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Status: status}
				if _, err := clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
					errs <- err
					return
				}
			}
		})
	}

	wg.Wait()
	close(errs)
	return <-errs // nil where there is none
}

// measure runs craned as an administrator and prints what it did in each minute.
func measure(
	ctx context.Context, control *controlplane.ControlPlane, source *answers, url, binary string, lasting time.Duration,
) error {
	const metrics = "127.0.0.1:18080"
	cmd := exec.CommandContext(ctx, binary, "--controllers=nodeload", "--leader-elect=false", "--kubeconfig="+control.Kubeconfig(),
		"--prometheus-address="+url, "--metrics-bind-address="+metrics, "--metrics-secure=false", "--server-bind-port=0", "--webhook-enabled=false", "--health-probe-bind-address=0")

	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()

	fmt.Println("minute  queries  patches  CPU s  memory MiB (now, peak)")
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()

	var queries int64
	var patches, cpu float64
	for minute := 1; time.Duration(minute)*time.Minute <= lasting; minute++ {
		<-ticker.C
		now, err := scrape(ctx, "http://"+metrics+"/metrics")
		if err != nil {
			return err
		}

		q := source.queries.Load()
		p := now[`crane_nodeload_patches_total{result="written"}`]
		c := now["process_cpu_seconds_total"]
		fmt.Printf("%6d  %7d  %7.0f  %5.1f  %.0f, %s\n", minute, q-queries, p-patches, c-cpu,
			now["process_resident_memory_bytes"]/(1<<20), peak(cmd.Process.Pid))
		queries = q
		patches = p
		cpu = c
	}

	return nil
}

// scrape reads the metrics of a process.
func scrape(ctx context.Context, url string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	out := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[series] = v
		}
	}

	return out, nil
}

// peak is the largest resident memory of a process so far, in MiB.
func peak(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "?"
	}

	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB")); err == nil {
				return strconv.Itoa(kib >> 10)
			}
		}
	}

	return "?"
}
