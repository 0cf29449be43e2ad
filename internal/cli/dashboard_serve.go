// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/backend"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/kube/pki"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/web"
)

const dashboardServeLong = `Serve serves the dashboard to the persons of a cluster, over TLS. The chart runs it as a Deployment (dashboard.enabled).

A person logs in with a bearer token of the cluster, or a proxy sends one with each request (Authorization: Bearer), such as the ID token
of an OpenID Connect login that the API server accepts. Crane's kinds are read once for all with the server's own rights, which are to list
them, and each answer is filtered by the access reviews of the person, cached for a minute. Everything else is read, and everything is
written, with the token of the person; nothing is impersonated. Each login and each write is logged.

Exit codes: 0 the command was stopped; 1 the command failed; 2 the flags are invalid.`

const dashboardServeExample = `  crane dashboard serve --prometheus http://prometheus.monitoring:9090 --tls-cert-dir /etc/crane-serving`

// dashboardServeOptions are the flags of `crane dashboard serve`.
type dashboardServeOptions struct {
	dashboardOptions
	certDir, clusterName string
}

func newDashboardServeCommand(s Streams) *cobra.Command {
	o := &dashboardServeOptions{dashboardOptions: dashboardOptions{prometheus: historyserver.NewServer()}}
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve the web UI to the persons of a cluster",
		Long:    dashboardServeLong,
		Example: dashboardServeExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.prometheus.Complete()
			if err := o.validate(); err != nil {
				return usageError(err)
			}

			return o.run(cmd.Context(), s)
		},
	}

	fs := cmd.Flags()
	o.addFlags(fs)
	fs.StringVar(&o.clusterName, "cluster-name", "cluster", "name of the cluster on the pages")
	fs.StringVar(&o.listen, "listen", ":8443", "address and port")
	fs.StringVar(&o.certDir, "tls-cert-dir", "", "directory with tls.crt and tls.key, read again when they change (default: a certificate is made at the start)")

	return cmd
}

func (o *dashboardServeOptions) validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen %q: %w", o.listen, err))
	}
	if o.prometheus.Address == "" {
		errs = append(errs, errors.New("--prometheus: the address is required; the server has no rights to search for it"))
	}
	if o.prometheus.Service != "" {
		errs = append(errs, errors.New("--prometheus-service: the server has no rights to reach a service through the API server; set --prometheus"))
	}

	return errors.Join(errs...)
}

func (o *dashboardServeOptions) run(ctx context.Context, s Streams) error {
	page, err := web.Handler()
	if err != nil {
		return err
	}

	policies, prices, err := o.settings()
	if err != nil {
		return err
	}

	config := o.viewConfig(o.clusterName, &clusteraccess.Access{Kubeconfig: o.kubeconfig}, policies, prices)
	view, reviews, err := backend.NewPersonal(config)
	if err != nil {
		return err
	}

	certificate, follow, err := pki.ServingConfig(o.certDir, "crane-dashboard")
	if err != nil {
		return fmt.Errorf("--tls-cert-dir: %w", err)
	}

	listener, err := dashboard.Listen(ctx, o.listen, certificate)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", o.listen, err)
	}

	server := dashboard.New(dashboard.Config{
		Mode:     contract.ModeCluster,
		Backends: []dashboard.Backend{dashboard.NewGuard(view, reviews)},
		Static:   page,
		Reviews:  reviews,
		Clock:    clock.RealClock{},
		Audit:    slog.New(slog.NewJSONHandler(s.Err, nil)),
	}, listener.Addr())

	if _, err := termtext.Fprintf(s.Out, "The dashboard is open at https://%s\n", listener.Addr()); err != nil {
		return fmt.Errorf("writing the address: %w", err)
	}

	group, ctx := errgroup.WithContext(ctx)
	if follow != nil {
		group.Go(func() error { return follow(ctx) })
	}

	group.Go(func() error { return server.Serve(ctx, listener) })
	return group.Wait()
}
