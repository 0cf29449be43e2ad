// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tunnel makes simulated nodes reachable for an API server at addresses that are not on loopback.
//
// An API server proxies to a node (nodes/NAME/proxy) only if the node's address is global unicast, but simulated nodes
// listen on loopback. So each node has an additional virtual address in 10.190.0.0/16, and the API server reaches the
// cluster through an egress selector (HTTP CONNECT over a Unix socket). The tunnel is the proxy at its other end: it
// forwards these addresses to the same port of 127.0.0.1 and rejects all destinations except loopback and the networks
// of directly reachable nodes.
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
	// maxSocketPath is the kernel's limit for paths of Unix sockets, without the terminating byte.
	maxSocketPath = 107
	// maxConnections bounds concurrent connections.
	maxConnections = 1024
	dialTimeout    = 10 * time.Second
)

// isNode reports whether an address belongs to a simulated node: 10.190.0.0/16.
func isNode(addr netip.Addr) bool {
	b := addr.As16()
	return addr.Is4() && b[12] == 10 && b[13] == 190
}

// NodeAddress returns the virtual address of the node with this index, 0 to 65533.
func NodeAddress(index int) string {
	return netip.AddrFrom4([4]byte{10, 190, byte((index + 1) >> 8), byte(index + 1)}).String()
}

// Tunnel is the proxy end of the tunnel. It must be opened before the API server starts, which reads the configuration
// file that Open writes.
type Tunnel struct {
	// Route returns the address on loopback that stands for another destination, such as the address of a Service. Nil for none. It must
	// be set before Serve.
	Route func(hostPort string) (address string, ok bool)

	listener net.Listener
	config   string
	direct   []netip.Prefix
	// scratch is a temporary directory for the socket; empty if not needed.
	scratch string
}

// Open creates the socket and the API server's configuration in the directory. The networks of direct contain nodes
// that are reached directly.
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

	// A long data directory exceeds the kernel's limit, so the socket gets a directory of its own.
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
		return fmt.Errorf("removing the socket of an earlier run: %w", err)
	}

	body, err := json.MarshalIndent(map[string]any{
		"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
		"egressSelections": []any{map[string]any{"name": "cluster", "connection": map[string]any{
			"proxyProtocol": "HTTPConnect", "transport": map[string]any{"uds": map[string]any{"udsName": socket}},
		}}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the configuration: %w", err)
	}

	if err := os.WriteFile(t.config, body, 0o600); err != nil {
		return err
	}

	var lc net.ListenConfig
	t.listener, err = lc.Listen(ctx, "unix", socket)
	return err
}

// APIServerArgs returns the flags that make kube-apiserver use the tunnel. It must also prefer the ExternalIP of nodes
// (--kubelet-preferred-address-types), as package controlplane configures it.
func (t *Tunnel) APIServerArgs() []string {
	return []string{"--egress-selector-config-file=" + t.config}
}

// Close closes the socket. It is idempotent, and not needed after Serve.
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

// Serve forwards connections until the context ends.
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

		_ = server.Serve(t.listener) // returns ErrServerClosed; the API server reports other errors
	}()

	<-ctx.Done()
	_ = server.Close() // close open connections
	<-done
	open.Wait()
	_ = t.Close() // an undeleted temporary directory is harmless
}

// connect handles one CONNECT request and copies bytes both ways until either side closes.
func (t *Tunnel) connect(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodConnect {
		http.Error(w, "this is a tunnel: only CONNECT is answered", http.StatusMethodNotAllowed)
		return
	}

	target, err := t.route(req.Host)
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
		http.Error(w, "the connection cannot be hijacked", http.StatusInternalServerError)
		_ = far.Close()
		return
	}

	near, buffered, err := hijacker.Hijack()
	if err != nil {
		_ = far.Close()
		return // the client has disconnected
	}

	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		splice(ctx, near, buffered, far)
	}

	_ = near.Close()
	_ = far.Close()
}

// route returns the destination of a host and port.
func (t *Tunnel) route(hostPort string) (string, error) {
	if t.Route != nil {
		if address, ok := t.Route(hostPort); ok {
			return address, nil
		}
	}

	return target(hostPort, t.direct)
}

// splice copies bytes both ways until either side closes or the context ends.
func splice(ctx context.Context, near net.Conn, buffered io.Reader, far net.Conn) {
	ends := make(chan struct{}, 2)
	carry := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // errors end the connection
		ends <- struct{}{}
	}
	go carry(far, buffered)
	go carry(near, far)

	pending := 2
	select {
	case <-ends:
		pending--
	case <-ctx.Done():
	}

	_ = near.Close()
	_ = far.Close()

	for range pending {
		<-ends
	}
}

// target returns the destination of a host and port: 127.0.0.1 for simulated nodes and names of loopback, the address
// itself in the direct networks.
func target(hostPort string, direct []netip.Prefix) (string, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return "", fmt.Errorf("parsing host %q: %w", hostPort, err)
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
