// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bridge manages the network between real nodes and their control plane: a bridge in the network namespace of
// the calling process, which must be its own (package sandbox), with a port for each node. Pods are reached by routes,
// without address translation.
package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

const (
	bridge = "nodes0"
	// MaxNodes bounds the number of nodes on one machine.
	MaxNodes = 9
)

// Gateway returns the address of the control plane's side, which routes for all nodes.
func Gateway() netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, 1}) }

// Address returns the address of node i, counted from 1, with the prefix of the network.
func Address(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(10 + i)}), 24)
}

// Pods returns the network of the pods of node i.
func Pods(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, byte(i), 0}), 24)
}

// AllPods returns the network of the pods of all nodes.
func AllPods() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, 0, 0}), 16) }

// Open creates the bridge and assigns addresses to the loopback interface in addition to the gateway's, so that nodes
// and pods reach listeners on them.
func Open(ctx context.Context, addresses ...netip.Addr) error {
	lines := []string{
		"link add " + bridge + " type bridge",
		"addr add " + netip.PrefixFrom(Gateway(), Address(1).Bits()).String() + " dev " + bridge,
		"link set " + bridge + " up",
	}

	for _, a := range addresses {
		lines = append(lines, "addr add "+netip.PrefixFrom(a, a.BitLen()).String()+" dev lo")
	}

	if err := ip(ctx, lines...); err != nil {
		return err
	}

	// The setting is specific to this network namespace.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("routing between nodes: %w", err)
	}

	return nil
}

// Attach creates the interface eth0 in the network namespace of process pid as node i's port. It is removed with the
// namespace.
func Attach(ctx context.Context, i, pid int) error {
	port := fmt.Sprintf("node%d", i)
	return ip(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, pid),
		"link set "+port+" master "+bridge+" up",
		route(i))
}

// AttachTap creates the port of node i as a tap device for a virtual machine and returns its name. Detach removes it.
func AttachTap(ctx context.Context, i int) (string, error) {
	port := fmt.Sprintf("node%d", i)
	return port, ip(ctx,
		"tuntap add dev "+port+" mode tap",
		"link set "+port+" master "+bridge+" up",
		route(i))
}

// Detach removes node i's port and route. The kernel removes the port of a deleted namespace with some delay.
func Detach(ctx context.Context, i int) error {
	port := fmt.Sprintf("node%d", i)
	if err := ip(ctx, "link del "+port); err != nil && !strings.Contains(err.Error(), "Cannot find device") {
		return err
	}

	return ip(ctx, "route flush "+Pods(i).String())
}

func route(i int) string {
	return fmt.Sprintf("route replace %s via %s", Pods(i), Address(i).Addr())
}

// ip runs commands of iproute2, one a line.
func ip(ctx context.Context, lines ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("configuring the network of the nodes: %w: %s", err, strings.TrimSpace(string(out)))
	}

	return nil
}
