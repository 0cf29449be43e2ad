// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel lets an API server reach simulated nodes by addresses that are not on loopback.
//
// An API server proxies to a node (nodes/NAME/proxy) only where the node's address is global unicast, and simulated
// nodes listen on loopback. So each node also has an address of its own out of 10.190.0.0/16 that exists nowhere, and
// the API server is configured to reach its cluster through a tunnel (an egress selector: HTTP CONNECT over a Unix
// socket), whose other end is here: it leads those addresses to the same port of 127.0.0.1. It leads nowhere else than
// to loopback. It must not know what is transported.
package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	loopback   = "127.0.0.1"
	socketName = "nodes.sock"
	// maxSocketPath is what the kernel takes as the path of a Unix socket, less the byte that ends it.
	maxSocketPath = 107
	// maxConnections bounds what is open at a time.
	maxConnections = 1024
	dialTimeout    = 10 * time.Second
)

// isNode says whether an address belongs to a simulated node: 10.190.0.0/16.
func isNode(addr netip.Addr) bool {
	b := addr.As16()
	return addr.Is4() && b[12] == 10 && b[13] == 190
}

// NodeAddress is the address of the node with this index, 0 to 65533.
func NodeAddress(index int) string {
	return netip.AddrFrom4([4]byte{10, 190, byte((index + 1) >> 8), byte(index + 1)}).String()
}

// Tunnel is the far end. Open it before the API server starts, which wants the file that it writes.
type Tunnel struct {
	listener net.Listener
	config   string
	direct   []netip.Prefix
	// scratch is a directory made for the socket alone; empty where there is none.
	scratch string
}

// Open makes the socket and the API server's configuration in the directory. Nodes that are no simulation have addresses
// in one of the networks of direct, to which the tunnel leads as well.
func Open(ctx context.Context, dir string, direct ...string) (*Tunnel, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("tunnel to simulated nodes: %w", err)
	}
	t := &Tunnel{config: filepath.Join(dir, "egress.json")}
	for _, network := range direct {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, fmt.Errorf("tunnel to simulated nodes: %w", err)
		}
		t.direct = append(t.direct, prefix)
	}
	socket := filepath.Join(dir, socketName)
	if len(socket) > maxSocketPath {
		if t.scratch, err = os.MkdirTemp("", "nodes-"); err != nil {
			return nil, fmt.Errorf("tunnel to simulated nodes: %w", err)
		}
		socket = filepath.Join(t.scratch, socketName)
	}
	if err := t.open(ctx, socket); err != nil {
		return nil, errors.Join(fmt.Errorf("tunnel to simulated nodes: %w", err), t.Close())
	}
	return t, nil
}

// open writes the configuration and listens on the socket.
func (t *Tunnel) open(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	body, err := json.MarshalIndent(map[string]any{
		"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
		"egressSelections": []any{map[string]any{"name": "cluster", "connection": map[string]any{
			"proxyProtocol": "HTTPConnect", "transport": map[string]any{"uds": map[string]any{"udsName": socket}},
		}}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	if err := os.WriteFile(t.config, body, 0o600); err != nil {
		return err
	}
	var lc net.ListenConfig
	t.listener, err = lc.Listen(ctx, "unix", socket)
	return err
}

// APIServerArgs are the flags that make kube-apiserver use the tunnel. It must also prefer the ExternalIP of nodes
// (--kubelet-preferred-address-types), as package controlplane has it do.
func (t *Tunnel) APIServerArgs() []string {
	return []string{"--egress-selector-config-file=" + t.config}
}

// Close gives the socket up. It may be called more than once, and is not needed after Serve.
func (t *Tunnel) Close() error {
	var err error
	if t.listener != nil {
		if err = t.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	if t.scratch != "" {
		err = errors.Join(err, os.RemoveAll(t.scratch))
	}
	return err
}

// Serve connects until the context ends.
func (t *Tunnel) Serve(ctx context.Context) {
	slots := make(chan struct{}, maxConnections)
	var open sync.WaitGroup
	server := &http.Server{
		ReadHeaderTimeout: dialTimeout, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			select {
			case slots <- struct{}{}:
				open.Add(1)
				defer open.Done()
				defer func() { <-slots }()
				t.connect(ctx, w, req)
			default:
				http.Error(w, "too many connections to simulated nodes", http.StatusServiceUnavailable)
			}
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(t.listener) // ends with ErrServerClosed; a socket that breaks is seen by the API server
	}()
	<-ctx.Done()
	_ = server.Close() // what is open ends with the context
	<-done
	open.Wait()
	_ = t.Close() // the socket is closed; a directory that cannot be removed is in the way of nobody
}

// connect answers one CONNECT and carries bytes both ways until either end closes.
func (t *Tunnel) connect(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodConnect {
		http.Error(w, "this is a tunnel: only CONNECT is answered", http.StatusMethodNotAllowed)
		return
	}
	target, err := target(req.Host, t.direct)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	far, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "the connection cannot be taken over", http.StatusInternalServerError)
		_ = far.Close()
		return
	}
	near, buffered, err := hijacker.Hijack()
	if err != nil {
		_ = far.Close()
		return // the client has gone
	}
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		splice(ctx, near, buffered, far)
	}
	_, _ = near.Close(), far.Close()
}

// splice carries bytes both ways until an end closes, or the context ends.
func splice(ctx context.Context, near net.Conn, buffered io.Reader, far net.Conn) {
	ends := make(chan struct{}, 2)
	carry := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // an end that closes is how a connection ends
		ends <- struct{}{}
	}
	go carry(far, buffered)
	go carry(near, far)
	left := 2
	select {
	case <-ends:
		left--
	case <-ctx.Done():
	}
	_, _ = near.Close(), far.Close()
	for range left {
		<-ends
	}
}

// target is where a host and port lead: a simulated node's address and every name of loopback to 127.0.0.1, an address of
// the direct networks to itself.
func target(hostPort string, direct []netip.Prefix) (string, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return "", fmt.Errorf("host %q: %w", hostPort, err)
	}
	if host == "localhost" {
		return net.JoinHostPort(loopback, port), nil
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return "", fmt.Errorf("host %q is not an address and not localhost", host)
	case isNode(addr):
		return net.JoinHostPort(loopback, port), nil
	case slices.ContainsFunc(direct, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return hostPort, nil
	case addr.IsLoopback() && addr.Zone() == "":
		return hostPort, nil
	}
	return "", fmt.Errorf("host %s is neither a simulated node nor on loopback", host)
}
