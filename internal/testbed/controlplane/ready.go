// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/loopback"
	"crane.io/crane/internal/testbed/process"
)

const (
	pollInterval = 50 * time.Millisecond
	// portTries bounds the attempts to find a free port when another process binds the chosen one first.
	portTries = 5
)

// startFirstAPIServer chooses the port and starts the API server on it.
func (c *ControlPlane) startFirstAPIServer(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := c.choosePort(ctx, try); err != nil {
			return err
		}

		if err := c.writeKubeconfigs(); err != nil {
			return err
		}

		exits, err := c.launch(APIServer)
		if err != nil {
			return err
		}

		begin := time.Now()
		err = c.awaitReady(ctx, exits)
		if err == nil {
			c.logf("API server ready at %s after %s", c.URL(), time.Since(begin).Round(10*time.Millisecond))
			return c.layout.savePort(c.port)
		}

		// Another process may have bound the port between the reservation and the start.
		portInUse := slices.ContainsFunc(c.LastLines(APIServer), func(line string) bool {
			return strings.Contains(line, "address already in use")
		})
		if !portInUse || c.options.APIServerPort != 0 || try == portTries {
			return err
		}

		if err := c.stop(ctx, APIServer); err != nil {
			return err
		}

		c.logf("port %d is in use by another process, trying another one", c.port)
	}
}

// choosePort sets the port: the configured one, that of the last run in this directory, or any free one.
func (c *ControlPlane) choosePort(ctx context.Context, try int) error {
	if err := c.releasePort(); err != nil {
		return err
	}

	if c.options.APIServerPort != 0 {
		c.port = c.options.APIServerPort
		return nil
	}

	want := 0
	if try == 1 {
		want = c.layout.lastPort()
	}

	// The port stays reserved until Stop, so that the API server can be restarted on it.
	port, err := loopback.Reserve(ctx, want)
	if err != nil && want != 0 {
		port, err = loopback.Reserve(ctx, 0)
	}

	if err != nil {
		return fmt.Errorf("finding a free port: %w", err)
	}

	c.heldPort = port
	c.port = port.Number()
	return nil
}

func (c *ControlPlane) releasePort() error {
	if c.heldPort == nil {
		return nil
	}

	reserved := c.heldPort
	c.heldPort = nil
	return reserved.Close()
}

// awaitReady waits until the API server's /readyz succeeds. It returns an error if the process exits first.
func (c *ControlPlane) awaitReady(ctx context.Context, exits <-chan process.Exit) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("creating the client of the API server: %w", err)
	}

	return c.poll(ctx, "API server ready", []<-chan process.Exit{exits}, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// awaitUsable waits for the namespaces and the service account that the components create shortly after their start and
// that all clients need.
func (c *ControlPlane) awaitUsable(ctx context.Context, exits []<-chan process.Exit) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("creating the client of the API server: %w", err)
	}

	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		err := c.poll(ctx, "namespace "+namespace, exits, func(ctx context.Context) error {
			_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}

	if !c.options.has(ControllerManager) {
		return nil
	}

	return c.poll(ctx, "service account default/default", exits, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(corev1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// poll calls check until it returns nil, a process exits, the ready timeout expires or ctx ends.
func (c *ControlPlane) poll(ctx context.Context, condition string, exits []<-chan process.Exit, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.ReadyTimeout, fmt.Errorf("not within %s", c.options.ReadyTimeout))
	defer cancel()

	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()

	for {
		last := check(ctx)
		if last == nil {
			return nil
		}

		// An exit explains a failing check better than its last error.
		for _, exit := range exits {
			select {
			case e := <-exit:
				return fmt.Errorf("waiting for %s: %s", condition, e)
			default:
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w)", condition, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}
