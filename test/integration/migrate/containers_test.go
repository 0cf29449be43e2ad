// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/loopback"
	"crane.io/crane/internal/testbed/process"
)

// containers runs the processes of Crane's pods, with the arguments, environment, configuration files and ServiceAccount of each pod, and
// a server in place of gocrane's metric-adapter. A pod is ready while its process is.
type containers struct {
	*fixture
	logs, prometheus string
	// binaries are the paths of commands by name.
	binaries map[string]string
	forecast func(target string) string

	mu       sync.Mutex
	byPod    map[string]*container // by UID
	reserved []*loopback.Port
	stopped  sync.WaitGroup
}

// container is the process of a pod.
type container struct {
	// ports has the addresses on loopback of ports of the pod.
	ports map[string]string
	ready func(context.Context) error
	stop  func(context.Context) error
	once  sync.Once
}

// start starts the process of a pod that Crane or gocrane's metric-adapter has, once, and reports whether it is ready. Pods of others are.
func (c *containers) start(ctx context.Context, pod *object) error {
	list, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	spec, _ := list[0].(map[string]any)
	image, _ := spec["image"].(string)
	c.mu.Lock()
	defer c.mu.Unlock()

	running := c.byPod[string(pod.GetUID())]
	if running == nil {
		var err error
		switch {
		case strings.Contains(image, "gocrane/metric-adapter"):
			running, err = c.startAdapter(ctx)
		case strings.Contains(image, "registry.example/crane/craned"):
			running, err = c.startProcess(ctx, pod, spec, "craned", map[string]string{
				"health-probe-bind-address": "probes", "webhook-port": "webhooks", "metrics-bind-address": "metrics",
			}, "--metrics-secure=false", "--webhook-host=127.0.0.1", "--server-bind-port=0", "--prometheus-address="+c.prometheus)

		case strings.Contains(image, "registry.example/crane/metric-adapter"):
			running, err = c.startProcess(ctx, pod, spec, "metric-adapter", map[string]string{"secure-port": "https"},
				"--bind-address=127.0.0.1", "--prometheus-address="+c.prometheus)
		default:
			return nil
		}

		if err != nil {
			return err
		}

		c.byPod[string(pod.GetUID())] = running
	}

	return running.ready(ctx)
}

// end stops the process of a deleted pod without waiting for it.
func (c *containers) end(ctx context.Context, uid string) {
	c.mu.Lock()
	running := c.byPod[uid]
	c.mu.Unlock()

	if running != nil {
		running.once.Do(func() { c.stopped.Go(func() { _ = running.stop(context.WithoutCancel(ctx)) }) })
	}
}

// endAll stops all processes.
func (c *containers) endAll(ctx context.Context) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.byPod))
	c.mu.Unlock()

	for _, uid := range all {
		c.end(ctx, uid)
	}

	c.stopped.Wait()
	for _, port := range c.reserved {
		if err := port.Close(); err != nil {
			c.Error(err)
		}
	}
}

// address returns the address on loopback of a port of a pod.
func (c *containers) address(uid, port string) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	if running := c.byPod[uid]; running != nil {
		return running.ports[port]
	}

	return ""
}

// startProcess starts a binary as a kubelet starts the container: with its arguments, files of its ConfigMaps and its environment. Ports are
// flags whose value becomes a free address, or its port, by the name of the container's port.
func (c *containers) startProcess(ctx context.Context, pod *object, spec map[string]any, binary string, ports map[string]string, flags ...string) (*container, error) {
	account := field(pod, "spec", "serviceAccountName")
	kubeconfig, err := c.control.KubeconfigFor(ctx, binary+pod.GetName(), controlplane.ServiceAccount(pod.GetNamespace(), account))
	if err != nil {
		return nil, err
	}

	dir := filepath.Join(c.TempDir(), pod.GetName())
	args, _, _ := unstructured.NestedStringSlice(spec, "args")
	for from, to := range c.mounts(ctx, pod, spec, dir) {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], from+"/", to+"/")
		}
	}

	out := &container{ports: map[string]string{}}
	for flag, name := range ports {
		reserved, err := loopback.Reserve(ctx, 0)
		if err != nil {
			return nil, err
		}

		c.reserved = append(c.reserved, reserved)
		out.ports[name] = reserved.Address()

		port := strconv.Itoa(reserved.Number())
		if strings.HasSuffix(flag, "-address") {
			port = reserved.Address()
		}

		flags = append(flags, "--"+flag+"="+port)
	}

	declared, _, _ := unstructured.NestedSlice(spec, "ports")
	for _, p := range declared { // Services name ports of pods or give their number.
		if port, _ := p.(map[string]any); out.ports[fmt.Sprint(port["name"])] != "" {
			out.ports[fmt.Sprint(port["containerPort"])] = out.ports[fmt.Sprint(port["name"])]
		}
	}

	kubeconfigFlag := "--kubeconfig="
	health := "http://" + out.ports["probes"] + "/readyz?exclude=data-source"
	if binary == "metric-adapter" {
		kubeconfigFlag = "--lister-kubeconfig="
		health = "https://" + out.ports["https"] + "/readyz?exclude=prometheus&exclude=remote-adapter"
	}

	env := []string{"CRANE_SYSTEM_NAMESPACE=" + pod.GetNamespace()}
	variables, _, _ := unstructured.NestedSlice(spec, "env")
	for _, v := range variables {
		if value, ok := v.(map[string]any)["value"].(string); ok {
			env = append(env, fmt.Sprint(v.(map[string]any)["name"])+"="+value)
		}
	}

	started, err := process.Start(process.Spec{
		Name: pod.GetName(), Path: c.binaries[binary], Args: append(append(args, flags...), kubeconfigFlag+kubeconfig), Env: env,
		StopTimeout: 40 * time.Second, Restart: process.Always, MinBackoff: time.Second,
		LogFile: filepath.Join(c.logs, pod.GetName()+".log"), OnExit: func(e process.Exit) { c.Errorf("%s", e) },
	})
	if err != nil {
		return nil, err
	}

	out.stop = started.Stop
	probe := &http.Client{Timeout: time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	out.ready = func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, health, http.NoBody)
		if err != nil {
			return err
		}

		response, err := probe.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()

		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", health, response.Status)
		}

		return nil
	}

	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("log of %s:\n%s", pod.GetName(), strings.Join(started.LastLines(), "\n"))
		}
	})

	return out, nil
}

// mounts writes the files of a container's volumes below a directory and returns the directories by mount path.
func (c *containers) mounts(ctx context.Context, pod *object, spec map[string]any, dir string) map[string]string {
	out := map[string]string{}
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	mounts, _ := spec["volumeMounts"].([]any)
	for _, m := range mounts {
		mount, _ := m.(map[string]any)
		path, _ := mount["mountPath"].(string)

		to := filepath.Join(dir, fmt.Sprint(mount["name"]))
		if err := os.MkdirAll(to, 0o700); err != nil {
			c.Error(err)
		}

		for _, v := range volumes {
			volume, _ := v.(map[string]any)
			name, ok, _ := unstructured.NestedString(volume, "configMap", "name")
			if !ok || volume["name"] != mount["name"] {
				continue
			}

			config := namespaced("v1", "ConfigMap", pod.GetNamespace(), name, nil)
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
				c.Error(err)
			}

			data, _, _ := unstructured.NestedStringMap(config.Object, "data")
			for file, text := range data {
				if err := os.WriteFile(filepath.Join(to, file), []byte(text), 0o600); err != nil {
					c.Error(err)
				}
			}
		}

		if !strings.HasPrefix(path, "/var/run/secrets") {
			out[path] = to
		}
	}

	return out
}

// startAdapter serves external metrics as gocrane's metric-adapter does, with a certificate that no one signed: forecasts, and six replicas
// by schedules.
func (c *containers) startAdapter(ctx context.Context) (*container, error) {
	certificate, key, err := c.control.IssueServing("localhost")
	if err != nil {
		return nil, err
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	server := &http.Server{ReadHeaderTimeout: time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, Handler: http.HandlerFunc(c.serveMetrics)}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return &container{
		ports: map[string]string{"6443": listener.Addr().String()},
		ready: func(context.Context) error { return nil }, stop: func(context.Context) error { return server.Close() },
	}, nil
}

func (c *containers) serveMetrics(w http.ResponseWriter, r *http.Request) {
	const group = "external.metrics.k8s.io/v1beta1"
	var answer any
	switch path := strings.TrimPrefix(r.URL.Path, "/apis/"+group); {
	case path == "" || path == "/":
		answer = map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []any{}}
	case strings.HasSuffix(path, "/crane_autoscaling_cron"):
		answer = externalMetric("crane_autoscaling_cron", "6")

	case strings.HasSuffix(path, "/crane_autoscaling_prediction"):
		_, target, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "targetName=")
		target, _, _ = strings.Cut(target, ",")
		answer = externalMetric("crane_autoscaling_prediction", c.forecast(target))
	default:
		http.NotFound(w, r)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func externalMetric(name, value string) any {
	return map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": map[string]any{}, "items": []any{
		map[string]any{"metricName": name, "metricLabels": map[string]any{}, "timestamp": time.Now().UTC().Format(time.RFC3339), "value": value},
	}}
}

// route stands for the network of the cluster: it resolves the address of a Service to the process of one of its ready pods.
func (c *containers) route(hostPort string) (string, bool) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil || net.ParseIP(host) == nil || !strings.HasPrefix(host, "10.96.") {
		return "", false
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	address, err := c.resolve(ctx, host, port)
	if err != nil {
		return "127.0.0.1:1", true // nothing answers
	}

	return address, true
}

func (c *containers) resolve(ctx context.Context, clusterIP, port string) (string, error) {
	services, err := c.list(ctx, "", "v1", "Service", client.InNamespace("crane-system"))
	if err != nil {
		return "", err
	}

	for i := range services.Items {
		service := &services.Items[i]
		if field(service, "spec", "clusterIP") != clusterIP {
			continue
		}

		target := ""
		ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
		for _, p := range ports {
			if entry, _ := p.(map[string]any); fmt.Sprint(entry["port"]) == port {
				target = fmt.Sprint(entry["targetPort"])
			}
		}

		slicesOf, err := c.list(ctx, "discovery.k8s.io", "v1", "EndpointSlice", client.InNamespace("crane-system"), client.MatchingLabels{"kubernetes.io/service-name": service.GetName()})
		if err != nil {
			return "", err
		}

		for j := range slicesOf.Items {
			endpoints, _, _ := unstructured.NestedSlice(slicesOf.Items[j].Object, "endpoints")
			for _, e := range endpoints {
				endpoint, _ := e.(map[string]any)
				ready, _, _ := unstructured.NestedBool(endpoint, "conditions", "ready")
				uid, _, _ := unstructured.NestedString(endpoint, "targetRef", "uid")
				if address := c.address(uid, target); ready && address != "" {
					return address, nil
				}
			}
		}

		return "", errors.New("no ready endpoint")
	}

	return "", errors.New("no such Service")
}
