// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/realcluster"
	"crane.io/crane/test/e2e/node"
)

// observedFor is how long sockets are observed, longer than the interval of requests to Prometheus.
const observedFor = 30 * time.Second

// Kinds of sockets, as in /proc/net/tcp.
const (
	established = 0x01
	synSent     = 0x02
	listening   = 0x0A
)

// connections are the ports of one component: those that it accepts connections on, and those that it connects to.
type connections struct{ accepts, opens map[int]bool }

// checkConnections compares the sockets of all pods of Crane with the NetworkPolicies of the chart, whose enforcement cannot be tested here: a
// component listens on the ports that its policy opens and on no others, and connects to ports that it allows.
func checkConnections(t *testing.T, n *node.Node) {
	t.Helper()

	observed := map[string]connections{}
	targets := serviceTargets(t, n)
	for end := time.Now().Add(observedFor); time.Now().Before(end); {
		pods, err := n.Client.CoreV1().Pods(realcluster.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}

		processes := podProcesses(t)
		for i := range pods.Items {
			p := &pods.Items[i]
			name := p.Labels["app.kubernetes.io/name"]
			if _, ok := observed[name]; !ok {
				observed[name] = connections{map[int]bool{}, map[int]bool{}}
			}

			for _, pid := range processes(p) {
				observed[name].read(pid, targets)
			}
		}

		select {
		case <-time.After(time.Second):
		case <-t.Context().Done():
		}
	}

	policies, err := n.Client.NetworkingV1().NetworkPolicies(realcluster.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if len(policies.Items) < 4 {
		t.Errorf("%d NetworkPolicies, want 4 or more", len(policies.Items))
	}

	for i := range policies.Items {
		p := &policies.Items[i]
		name := p.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"]
		sockets := observed[name]
		t.Logf("%s accepts %v and connects to %v", name, ports(sockets.accepts), ports(sockets.opens))

		if err := compareWithPolicy(p, sockets); err != nil {
			t.Errorf("NetworkPolicy %s: %v", p.Name, err)
		}
	}
}

// compareWithPolicy returns an error for each difference.
func compareWithPolicy(p *networkingv1.NetworkPolicy, sockets connections) error {
	var errs []error
	in := map[int]bool{}
	out := map[int]bool{}

	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			in[port.Port.IntValue()] = true
		}
	}

	for _, rule := range p.Spec.Egress {
		for _, port := range rule.Ports {
			out[port.Port.IntValue()] = true
		}
	}

	for port := range sockets.accepts {
		if !in[port] {
			errs = append(errs, fmt.Errorf("port %d accepts connections and is closed", port))
		}
	}

	for port := range in {
		if !sockets.accepts[port] {
			errs = append(errs, fmt.Errorf("port %d is open and not in use", port))
		}
	}

	for port := range sockets.opens {
		if !out[port] {
			errs = append(errs, fmt.Errorf("a connection to port %d is not allowed", port))
		}
	}

	if len(sockets.opens) == 0 {
		errs = append(errs, errors.New("no connection was seen"))
	}

	return errors.Join(errs...)
}

// serviceTargets returns the port of the endpoints of each address of a Service: policies see connections after kube-proxy translated them.
func serviceTargets(t *testing.T, n *node.Node) map[netip.AddrPort]int {
	t.Helper()

	services, err := n.Client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	slicesOf, err := n.Client.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	out := map[netip.AddrPort]int{}
	for i := range services.Items {
		s := &services.Items[i]
		address, err := netip.ParseAddr(s.Spec.ClusterIP)
		if err != nil {
			continue // Headless.
		}

		for _, port := range s.Spec.Ports {
			for j := range slicesOf.Items {
				e := &slicesOf.Items[j]
				if e.Namespace != s.Namespace || e.Labels["kubernetes.io/service-name"] != s.Name {
					continue
				}

				for _, p := range e.Ports {
					if p.Name != nil && *p.Name == port.Name && p.Port != nil {
						out[netip.AddrPortFrom(address, uint16(port.Port))] = int(*p.Port)
					}
				}
			}
		}
	}

	return out
}

// endpointPort returns the port of the endpoints of a Service.
func endpointPort(t *testing.T, n *node.Node, namespace, name string) int {
	t.Helper()

	s, err := n.Client.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	address, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		t.Fatal(err)
	}

	port := serviceTargets(t, n)[netip.AddrPortFrom(address, uint16(s.Spec.Ports[0].Port))]
	if port == 0 {
		t.Fatalf("Service %s/%s has no endpoints, want an address", namespace, name)
	}

	return port
}

// podProcesses returns a function that returns the processes of a pod, which their cgroups name.
func podProcesses(t *testing.T) func(*corev1.Pod) []string {
	t.Helper()

	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}

	cgroups := map[string]string{}
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil {
			cgroups[filepath.Dir(file)] = string(content)
		}
	}

	return func(p *corev1.Pod) (out []string) {
		for dir, cgroup := range cgroups {
			uid := string(p.UID)
			if strings.Contains(cgroup, uid) || strings.Contains(cgroup, strings.ReplaceAll(uid, "-", "_")) {
				out = append(out, dir)
			}
		}

		return out
	}
}

// read adds the sockets of the network namespace of a process.
func (c connections) read(process string, targets map[netip.AddrPort]int) {
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(process, "net", file))
		if err != nil {
			continue // The process has ended.
		}

		var listens []netip.AddrPort
		var others [][2]netip.AddrPort
		for lines := bufio.NewScanner(f); lines.Scan(); {
			columns := strings.Fields(lines.Text())
			if len(columns) < 4 || columns[0] == "sl" {
				continue
			}

			local := socketAddress(columns[1])
			remote := socketAddress(columns[2])
			switch state, _ := strconv.ParseUint(columns[3], 16, 8); state {
			case listening:
				listens = append(listens, local)
			case established, synSent:
				others = append(others, [2]netip.AddrPort{local, remote})
			}
		}

		f.Close()
		for _, l := range listens {
			if !l.Addr().IsLoopback() {
				c.accepts[int(l.Port())] = true
			}
		}

		for _, o := range others {
			port := int(o[1].Port())
			if target := targets[o[1]]; target > 0 {
				port = target
			}
			if !c.accepts[int(o[0].Port())] && !o[1].Addr().IsLoopback() {
				c.opens[port] = true
			}
		}
	}
}

// socketAddress parses an address of /proc/net/tcp: words of the host's byte order, here little endian, and the port.
func socketAddress(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}
	}

	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}

	address, _ := netip.AddrFromSlice(raw)
	number, _ := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(address.Unmap(), uint16(number))
}

func ports(set map[int]bool) []int {
	var out []int
	for port := range set {
		out = append(out, port)
	}

	slices.Sort(out)
	return out
}
