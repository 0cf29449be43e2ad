// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/backend"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/historyserver"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/recommendation/pricebook"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/web"
)

const dashboardLong = `Dashboard serves the web UI on this machine, with the rights of the kubeconfig: what the cluster costs, what can be saved, how each
number was computed and what it would have done on past days. Recommendations are those of the cluster if Crane is installed;
otherwise the dashboard computes them as crane recommend does. Nothing is installed.

The server listens on a loopback address. The address that is printed has a token that opens one session, for 12 hours, and is
then used up. Other users of this machine cannot open it without the token. Adopting, pausing and rolling back are the only
writes; each is logged.

With several --context, the worklist has the recommendations of all of them.

Exit codes: 0 the command was stopped; 1 the command failed; 2 the flags are invalid.`

const dashboardExample = `  crane dashboard
  crane dashboard --prometheus http://localhost:9090
  crane dashboard --context prod --context staging
  crane dashboard --from ./traces --resource cpu --open=false`

// dashboardOptions are the flags of `crane dashboard`.
type dashboardOptions struct {
	prometheus      *historyserver.Server
	kubeconfig      string
	contexts        []string
	namespaces      []string
	cache           profile.CacheConfig
	from            string
	resource        string
	policyName      string
	priceBook       string
	listen          string
	open            bool
	cranedNamespace string
	scheduler       string
}

func newDashboardCommand(s Streams) *cobra.Command {
	o := &dashboardOptions{prometheus: historyserver.NewServer()}
	cmd := &cobra.Command{
		Use:     "dashboard",
		Short:   "Open the web UI",
		Long:    dashboardLong,
		Example: dashboardExample,
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
	addCacheFlags(fs, &o.cache)
	fs.StringArrayVar(&o.contexts, "context", nil, "context of the kubeconfig; may be repeated for several clusters")
	fs.StringArrayVarP(&o.namespaces, "namespace", "n", nil, "namespace to read; may be repeated (default: all, or that of the context without the right to all)")
	fs.StringVar(&o.from, "from", "", "directory of CSV files (header ts,value) to read instead of a cluster; each file is a workload")
	fs.StringVar(&o.resource, "resource", string(metrics.CPU), "resource in the CSV files: cpu (cores) or memory (bytes)")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "loopback address and port; port 0 is a free one")
	fs.BoolVar(&o.open, "open", true, "open the address in the browser")
	cmd.AddCommand(newDashboardServeCommand(s))

	return cmd
}

// addFlags adds the flags of both ways to open the dashboard.
func (o *dashboardOptions) addFlags(fs *pflag.FlagSet) {
	addPrometheusFlags(fs, o.prometheus)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, then ~/.kube/config, then the pod's service account)")
	fs.StringVar(&o.policyName, "policy", rightsize.DefaultPolicy, "policy of steps, replay and what-if: "+strings.Join(rightsize.PolicyNames(), ", ")+", or a file in YAML or JSON")
	fs.StringVar(&o.priceBook, "price-book", "", "YAML or JSON file with the prices of nodes (default: approximate prices; see docs/reference/cost.md)")
	fs.StringVar(&o.scheduler, "scheduler", "", "address of the scheduler's explainAddress, such as http://127.0.0.1:10260 (default: by port forwarding)")
	fs.StringVar(&o.cranedNamespace, "craned-namespace", "crane-system", "namespace of craned's Deployment and of its OOM record")
}

// settings reads the sizing policies and the prices.
func (o *dashboardOptions) settings() (rightsize.PolicySet, *cost.PriceBook, error) {
	policies, err := loadPolicies(o.policyName)
	if err != nil {
		return policies, nil, usageError(fmt.Errorf("--policy: %w", err))
	}

	prices, err := pricebook.Load(o.priceBook)
	if err != nil {
		return policies, nil, usageError(fmt.Errorf("--price-book: %w", err))
	}

	return policies, prices, nil
}

func (o *dashboardOptions) validate() error {
	var errs []error
	if host, _, err := net.SplitHostPort(o.listen); err != nil {
		errs = append(errs, fmt.Errorf("--listen %q: %w", o.listen, err))
	} else if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		errs = append(errs, fmt.Errorf("--listen %q: must be a loopback address, such as 127.0.0.1:8090", o.listen))
	}

	if o.resource != string(metrics.CPU) && o.resource != string(metrics.Memory) {
		errs = append(errs, fmt.Errorf("--resource %q: want %s or %s", o.resource, metrics.CPU, metrics.Memory))
	}
	if o.from != "" && (len(o.contexts) > 0 || o.kubeconfig != "" || o.prometheus.Service != "") {
		errs = append(errs, errors.New("--from reads no cluster: --context, --kubeconfig and --prometheus-service cannot be combined with it"))
	}
	if len(o.contexts) > 1 && (o.prometheus.Address != "" || o.prometheus.Service != "") {
		errs = append(errs, errors.New("several --context need the Prometheus of each cluster: --prometheus and --prometheus-service cannot be combined with them"))
	}

	return errors.Join(errs...)
}

func (o *dashboardOptions) run(ctx context.Context, s Streams) error {
	backends, mode, err := o.backends()
	if err != nil {
		return err
	}

	page, err := web.Handler()
	if err != nil {
		return err
	}

	listener, err := dashboard.Listen(ctx, o.listen, nil)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", o.listen, err)
	}

	server := dashboard.New(dashboard.Config{
		Mode:     mode,
		Backends: backends,
		Static:   page,
		User:     o.userName(),
		Clock:    clock.RealClock{},
		Audit:    slog.New(slog.NewTextHandler(s.Err, nil)),
	}, listener.Addr())

	link := server.Link()
	if _, err := termtext.Fprintf(s.Out, "The dashboard is open at %s\nThe address opens one session. Press Ctrl+C to end it.\n", link); err != nil {
		return fmt.Errorf("writing the address: %w", err)
	}

	// The token of the address is passed to the browser in a file that is removed once the session is open.
	if o.open {
		remove, err := openSecretLink(ctx, link)
		if err != nil {
			termtext.Fprintf(s.Err, "The browser cannot be opened (%v): open the address yourself.\n", err)
		}

		defer remove()

		go func() {
			select {
			case <-server.Opened():
				remove()
			case <-ctx.Done():
			}
		}()
	}

	return server.Serve(ctx, listener)
}

// backends returns the clusters of the contexts, or the directory of files.
func (o *dashboardOptions) backends() ([]dashboard.Backend, contract.Mode, error) {
	policies, prices, err := o.settings()
	if err != nil {
		return nil, "", err
	}

	if o.from != "" {
		return []dashboard.Backend{backend.New(o.viewConfig("files", &clusteraccess.Access{}, policies, prices))}, contract.ModeFiles, nil
	}

	contexts := o.contexts
	if len(contexts) == 0 {
		contexts = []string{""}
	}

	var out []dashboard.Backend
	for _, name := range contexts {
		access := &clusteraccess.Access{Kubeconfig: o.kubeconfig, Context: name}
		// The page names the context that the kubeconfig selects.
		if name == "" {
			if raw, err := access.ClientConfig().RawConfig(); err == nil {
				name = raw.CurrentContext
			}
			if name == "" {
				name = "default"
			}
		}

		out = append(out, backend.New(o.viewConfig(name, access, policies, prices)))
	}

	return out, contract.ModeLocal, nil
}

// viewConfig returns the settings of the view of a cluster.
func (o *dashboardOptions) viewConfig(name string, access *clusteraccess.Access, policies rightsize.PolicySet, prices *cost.PriceBook) backend.Config {
	return backend.Config{
		ClusterName:     name,
		Access:          access,
		Personal:        access,
		Policies:        policies,
		Prices:          prices,
		Clock:           clock.RealClock{},
		OnlyNamespaces:  o.namespaces,
		Prometheus:      o.prometheus,
		Cache:           o.cache,
		From:            o.from,
		Resource:        o.resource,
		CranedNamespace: o.cranedNamespace,
		Scheduler:       o.scheduler,
	}
}

// userName returns the user of the first context, for the page and the audit log.
func (o *dashboardOptions) userName() string {
	access := &clusteraccess.Access{Kubeconfig: o.kubeconfig}
	if len(o.contexts) > 0 {
		access.Context = o.contexts[0]
	}

	raw, err := access.ClientConfig().RawConfig()
	if err != nil || o.from != "" {
		return ""
	}

	name := access.Context
	if name == "" {
		name = raw.CurrentContext
	}

	if kubeContext := raw.Contexts[name]; kubeContext != nil {
		return kubeContext.AuthInfo
	}

	return ""
}
