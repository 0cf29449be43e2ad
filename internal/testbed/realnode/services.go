// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/process"
	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/nodespec"
	"crane.io/crane/internal/testbed/realnode/sandbox"
)

const (
	// clusterDomain is the domain of Services and pods.
	clusterDomain = "cluster.local"
	// dnsIP is the ClusterIP of service kube-system/kube-dns.
	dnsIP   = "10.96.0.10"
	dnsName = "kube-dns"
	dnsPort = 53

	kubeProxyPath       = "/opt/crane/kube-proxy"
	kubeProxyKubeconfig = configDir + "/kube-proxy.kubeconfig"
	stepKubeProxy       = "kube-proxy"
)

// APIServerArgs returns the arguments with which the API server reaches Services of real nodes: it has no kube-proxy, but a route to pods.
func APIServerArgs() map[controlplane.Component][]string {
	return map[controlplane.Component][]string{controlplane.APIServer: {"--enable-aggregator-routing=true"}}
}

// EnableServices gives nodes that start afterward ClusterIPs and cluster DNS: kube-proxy runs on each, CoreDNS beside the control plane,
// which must have been started with APIServerArgs.
func (c *Cluster) EnableServices(ctx context.Context) error {
	if err := c.assets.HasServices(); err != nil {
		return err
	}

	// kube-proxy sends connections to the API server's ClusterIP here.
	var config net.ListenConfig

	listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort(bridge.Gateway().String(), servicePort))
	if err != nil {
		return fmt.Errorf("serving the API server to nodes: %w", err)
	}

	go sandbox.Serve(listener, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.control.Port())))
	if err := c.startDNS(); err != nil {
		return errors.Join(err, listener.Close())
	}

	port, err := strconv.ParseInt(servicePort, 10, 32)
	if err != nil {
		return errors.Join(fmt.Errorf("parsing the port of the API server: %w", err), listener.Close())
	}

	err = errors.Join(
		PublishService(ctx, c.client, metav1.NamespaceDefault, "kubernetes", nil, "", corev1.ServicePort{Name: "https", Protocol: corev1.ProtocolTCP, Port: int32(port)}),
		PublishService(ctx, c.client, metav1.NamespaceSystem, dnsName, map[string]string{"k8s-app": dnsName}, dnsIP,
			corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: dnsPort},
			corev1.ServicePort{Name: "dns-tcp", Protocol: corev1.ProtocolTCP, Port: dnsPort}))
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.gateway = listener
	c.services = true
	return nil
}

// PublishService creates a Service whose only endpoint is the control plane's side of the bridge, where something of this machine listens on
// the same ports. An existing Service stays as it is.
func PublishService(ctx context.Context, client kubernetes.Interface, namespace, name string, labels map[string]string, clusterIP string, ports ...corev1.ServicePort) error {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: ports}}
	if _, err := client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating service %s/%s: %w", namespace, name, err)
	}

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{bridge.Gateway().String()}}},
	}

	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port})
	}

	if _, err := client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating endpoints of %s/%s: %w", namespace, name, err)
	}

	return nil
}

// startDNS starts CoreDNS on all addresses of this network namespace. The kernel stops it with the session.
func (c *Cluster) startDNS() error {
	file := filepath.Join(c.session.Dir, "Corefile")
	content := fmt.Sprintf(".:%d {\n  errors\n  kubernetes %s in-addr.arpa {\n    kubeconfig %s\n    pods insecure\n  }\n  cache 5\n}\n",
		dnsPort, clusterDomain, c.control.Kubeconfig())

	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return fmt.Errorf("starting CoreDNS: %w", err)
	}

	dns, err := process.Start(process.Spec{
		Name:    "coredns",
		Path:    c.assets.CoreDNS(),
		Args:    []string{"-conf", file},
		LogFile: filepath.Join(c.session.Dir, "coredns.log"),
		Restart: process.Always,
	})

	c.dns = dns
	return err
}

// closeServices stops what EnableServices started.
func (c *Cluster) closeServices(ctx context.Context) error {
	c.mu.Lock()
	listener, dns := c.gateway, c.dns
	c.mu.Unlock()

	var errs []error
	if listener != nil {
		errs = append(errs, listener.Close())
	}
	if dns != nil {
		errs = append(errs, dns.Stop(ctx))
	}

	return errors.Join(errs...)
}

// proxyStep returns the step that runs kube-proxy.
func proxyStep(o NodeOptions) nodespec.Step {
	return nodespec.Step{Name: stepKubeProxy, Daemon: true, Restart: o.Restart, Args: []string{
		kubeProxyPath, "--kubeconfig", kubeProxyKubeconfig, "--hostname-override", o.Name, "--proxy-mode=nftables", "--cluster-cidr", bridge.AllPods().String(),
		// The answer of a pod on the same bridge has to come back through the node.
		"--masquerade-all",
		// Settings of connection tracking are the machine's.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
	}}
}
