// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/component/boundedserver"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/craned/webapi"
	"crane.io/crane/internal/kube/pki"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/prediction/controller"
	"crane.io/crane/pkg/series"
)

// WebAPI are the settings of the web API.
type WebAPI struct {
	BindAddress string
	// BindPort is 0 for no web API.
	BindPort int
	// Secure serves over TLS.
	Secure bool
	// CertDir has tls.crt and tls.key; empty for a certificate generated at start.
	CertDir string
}

func newWebAPI() WebAPI { return WebAPI{BindAddress: "0.0.0.0", BindPort: 8082, Secure: true} }

func (a *WebAPI) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.BindAddress, "server-bind-address", a.BindAddress, "Address that serves the web API.")
	fs.IntVar(&a.BindPort, "server-bind-port", a.BindPort, "Port that serves the web API; 0 serves none.")
	fs.BoolVar(&a.Secure, "server-secure", a.Secure,
		"Serve the web API over TLS. Set false only behind a TLS proxy in the same pod, because requests carry bearer tokens.")
	fs.StringVar(&a.CertDir, "server-cert-dir", a.CertDir,
		"Directory with tls.crt and tls.key for the web API, read again when they change. Empty: a certificate is made at the start.")
}

func (a *WebAPI) validate() field.ErrorList {
	var errs field.ErrorList
	if a.BindPort < 0 || a.BindPort > 65535 {
		errs = append(errs, field.Invalid(flag("server-bind-port"), a.BindPort, "must be a port, or 0 for none"))
	}
	if a.BindAddress != "" && net.ParseIP(a.BindAddress) == nil {
		errs = append(errs, field.Invalid(flag("server-bind-address"), a.BindAddress, "must be an IP address"))
	}
	if a.CertDir != "" && !a.Secure {
		errs = append(errs, field.Forbidden(flag("server-cert-dir"), "--server-secure is false"))
	}

	return errs
}

// addWebAPI serves the web API on every replica.
func addWebAPI(ctx context.Context, d *dependencies) error {
	if d.WebAPI.BindPort == 0 {
		return nil
	}

	authn, authz, err := webapi.NewDelegatedAuth(d.mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("adding the web API: %w", err)
	}

	api, err := webapi.New(webapi.Config{
		Objects:       d.mgr.GetCache(),
		Queries:       d.data.list,
		MaxPoints:     d.Prometheus.MaxPoints,
		PastSeries:    d.pastSeries(&controller.NodeTemplates{Reader: d.mgr.GetAPIReader(), Namespace: d.Namespace, Clock: wallclock.New()}),
		Authenticator: authn,
		Authorizer:    authz,
		Clock:         wallclock.New(),
	})
	if err != nil {
		return fmt.Errorf("adding the web API: %w", err)
	}

	if err := metricsRegistry().Register(api); err != nil {
		return fmt.Errorf("registering the metrics of the web API: %w", err)
	}

	address := net.JoinHostPort(d.WebAPI.BindAddress, strconv.Itoa(d.WebAPI.BindPort))
	var config *tls.Config
	if d.WebAPI.Secure {
		config, err = servingTLS(d.mgr, "server-cert-dir", d.WebAPI.CertDir)
		if err != nil {
			return err
		}
	}

	listener, err := boundedserver.Listen(ctx, address, maxConnections, config)
	if err != nil {
		return fmt.Errorf("--server-bind-port: %w", err)
	}

	timeout := serverShutdown
	server := boundedserver.New(api, webapi.Timeout+probeTimeout)
	server.ReadTimeout = probeTimeout
	server.MaxHeaderBytes = 1 << 15 // a URL of maxURL and a token
	server.BaseContext = func(net.Listener) context.Context {
		return ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithName("web-api"))
	}

	if err := d.mgr.Add(&manager.Server{
		Name:            "web API",
		Listener:        listener,
		ShutdownTimeout: &timeout,
		Server:          server,
	}); err != nil {
		return fmt.Errorf("adding the web API: %w", err)
	}

	return nil
}

// maxConnections bounds the connections to the web API, and those to the metrics. Their clients are authenticated later.
const maxConnections = 256

// servingTLS returns a configuration with the certificate of a directory, which the named flag has and which is reloaded, or with one generated
// for this host.
func servingTLS(mgr manager.Manager, flag, dir string) (*tls.Config, error) {
	config, follow, err := pki.ServingConfig(dir, "craned")
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}

	if follow != nil {
		if err := mgr.Add(onEveryReplica(follow)); err != nil {
			return nil, fmt.Errorf("adding the follower of --%s: %w", flag, err)
		}
	}

	return config, nil
}

// pastSeries returns a function that reads the history of a prediction's metric from the data sources, as far as a forecast may.
func (d *dependencies) pastSeries(templates *controller.NodeTemplates) webapi.PastSeries {
	return func(
		ctx context.Context, tsp *predictionv1alpha1.TimeSeriesPrediction, metric *predictionv1alpha1.PredictionMetric, w metrics.Window,
	) ([]metrics.LabeledSeries, error) {
		if err := templates.Check(ctx, tsp); err != nil {
			return nil, fmt.Errorf("metric %s: %w", metric.ResourceIdentifier, err)
		}

		return d.readPast(ctx, tsp, metric, w)
	}
}

func (d *dependencies) readPast(
	ctx context.Context, tsp *predictionv1alpha1.TimeSeriesPrediction, metric *predictionv1alpha1.PredictionMetric, w metrics.Window,
) ([]metrics.LabeledSeries, error) {
	query, err := controller.QueryOf(tsp, metric, d.data.selector, d.isolation())
	if err != nil {
		return nil, fmt.Errorf("metric %s: %w", metric.ResourceIdentifier, err)
	}

	// PromQL is evaluated as it is; usage is read of the target, a workload or, without a namespace, a node.
	if query.Expression != "" {
		return d.data.list.Range(ctx, query.Expression, w)
	}

	target := query.Target
	if target.Name == "" {
		return nil, errors.New("there is no target")
	}

	read := func() (map[string]series.Series, error) {
		if target.Namespace == "" {
			return d.data.list.NodeUsage(ctx, metrics.NodesRequest{Resource: query.Resource, Names: []string{target.Name}, Window: w})
		}

		return d.data.list.WorkloadUsage(ctx, metrics.WorkloadsRequest{
			Resource:  query.Resource,
			Namespace: target.Namespace,
			Kind:      target.Kind,
			Names:     []string{target.Name},
			Window:    w,
		})
	}

	byName, err := read()
	if err != nil {
		return nil, fmt.Errorf("metric %s: %w", metric.ResourceIdentifier, err)
	}

	past, ok := byName[target.Name]
	if !ok {
		return nil, nil
	}

	return []metrics.LabeledSeries{{Series: past}}, nil
}
