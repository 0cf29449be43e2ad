// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestNetworkPolicyEgress checks that no rule opens a port of the addresses at which clouds serve credentials of the node, except ports of the API server and
// of the kubelet, and that values name the addresses of the API server and add rules.
func TestNetworkPolicyEgress(t *testing.T) {
	const metadataPort = 80

	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"defaults": {nil, nil},
		"addresses": {
			[]string{
				"--set", "networkPolicy.apiServerAddresses={10.0.0.1/32}",
				"--set-json", `networkPolicy.additionalEgress=[{"ports":[{"port":1234}],"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}]}]`,
			},
			[]string{"10.0.0.1/32", "192.0.2.0/24"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			policies := 0
			for _, o := range render(t, append([]string{"--set", "networkPolicy.enabled=true,dashboard.enabled=true"}, c.args...)...) {
				if o.GetKind() != "NetworkPolicy" {
					continue
				}

				policies++
				policy := convert[networkingv1.NetworkPolicy](t, o)
				if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
					t.Errorf("NetworkPolicy %s has types %v, want egress among them", policy.Name, policy.Spec.PolicyTypes)
				}

				var allowed []string
				for _, rule := range policy.Spec.Egress {
					for _, address := range []string{"169.254.169.254", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23"} {
						if opens(rule, metadataPort, netip.MustParseAddr(address)) {
							t.Errorf("NetworkPolicy %s: rule %+v opens port %d of %s, want it closed", policy.Name, rule, metadataPort, address)
						}
					}

					for _, peer := range rule.To {
						if peer.IPBlock != nil {
							allowed = append(allowed, peer.IPBlock.CIDR)
						}
					}
				}

				for _, cidr := range c.want {
					if !slices.Contains(allowed, cidr) {
						t.Errorf("NetworkPolicy %s allows %v, want %s of the values", policy.Name, allowed, cidr)
					}
				}
			}

			if policies != 5 {
				t.Errorf("the chart has %d NetworkPolicies, want one for each of 5 components", policies)
			}
		})
	}
}

// TestNetworkPolicyPrometheus checks that Prometheus is reached as a pod and outside of the cluster.
func TestNetworkPolicyPrometheus(t *testing.T) {
	for _, o := range render(t, "--set", "networkPolicy.enabled=true") {
		if o.GetKind() != "NetworkPolicy" || o.GetName() != "craned" {
			continue
		}

		policy := convert[networkingv1.NetworkPolicy](t, o)
		for _, address := range []string{"10.244.1.7", "203.0.113.5", "2001:db8::7"} {
			if !slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return opens(rule, 9090, netip.MustParseAddr(address))
			}) {
				t.Errorf("NetworkPolicy craned closes port 9090 of %s, want it open", address)
			}
		}

		if !slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool { return peer.NamespaceSelector != nil })
		}) {
			t.Error("NetworkPolicy craned selects no pods, want them for network plugins whose address blocks match no pod")
		}

		return
	}

	t.Error("the chart has no NetworkPolicy craned")
}

// opens reports whether a rule lets TCP connections to an address through.
func opens(rule networkingv1.NetworkPolicyEgressRule, port int, address netip.Addr) bool {
	opensPort := len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
		isTCP := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		return isTCP && (p.Port == nil || p.Port.IntValue() == port)
	})
	if !opensPort {
		return false
	}

	contains := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(address) }
	return len(rule.To) == 0 || slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.IPBlock != nil && contains(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, contains)
	})
}

// TestAgentMounts checks that the chart shows the agent the socket of the kubelet's directory alone, and pki beside it where a value says so.
func TestAgentMounts(t *testing.T) {
	for flag, want := range map[string][]string{
		"craneAgent.enabled=true":            {"/var/lib/kubelet/pod-resources"},
		"craneAgent.kubeletCertificate=true": {"/var/lib/kubelet/pki", "/var/lib/kubelet/pod-resources"},
	} {
		for _, o := range render(t, "--set", flag) {
			if o.GetKind() != "DaemonSet" {
				continue
			}

			set := convert[appsv1.DaemonSet](t, o)
			paths := map[string]string{}
			for _, v := range set.Spec.Template.Spec.Volumes {
				if v.HostPath != nil {
					paths[v.Name] = v.HostPath.Path
				}
			}

			var got []string
			for _, m := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
				const kubelet = "/var/lib/kubelet"
				path := paths[m.Name]
				_, isAbove := strings.CutPrefix(kubelet, strings.TrimSuffix(path, "/"))
				if strings.HasPrefix(path, kubelet) && m.ReadOnly && m.MountPath == "/host"+path {
					got = append(got, path)
				} else if path != "" && isAbove {
					t.Errorf("--set %s: mount %+v shows %s, want no more of the kubelet's directory than the agent reads", flag, m, path)
				}
			}

			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("--set %s: the agent sees %v of the kubelet's directory, want %v", flag, got, want)
			}
		}
	}
}
