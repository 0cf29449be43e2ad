// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/cmd/options"

	"crane.io/crane/internal/component/logging"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/metrics/promflags"
)

// defaultNamespace is Crane's namespace unless CRANE_SYSTEM_NAMESPACE is set.
const defaultNamespace = "crane-system"

// Options are the settings of metric-adapter. Flags that gocrane had keep its names and defaults.
type Options struct {
	// Server configures serving, authentication and authorization.
	Server *options.CustomMetricsAdapterServerOptions
	// Kubeconfig is the path of a kubeconfig file; empty for the service account of a pod.
	Kubeconfig string
	// Namespace is that of Crane, with the certificate and the Service of the adapter.
	Namespace string
	APIQPS    float32
	APIBurst  int
	// DiscoveryInterval is the time between two discoveries of resources and of the metrics of a remote adapter.
	DiscoveryInterval time.Duration

	// Service is the name of the Service through which the API server calls the adapter.
	Service string
	// CertificateSecret is the name of the Secret with the certificate that replicas share.
	CertificateSecret string
	Prometheus        promflags.Options
	// RulesFile is a file with prometheus-adapter's configuration; empty for none.
	RulesFile string
	// RulesLabels is "k=v,k2=v2", added to each query of a rule.
	RulesLabels string
	// ListInterval is the time between two listings of the series in Prometheus.
	ListInterval time.Duration
	// MaxAge is the maximum age of the newest sample of a series that is listed.
	MaxAge time.Duration

	Remote RemoteAdapter

	// CronLocalTime evaluates cron schedules without a time zone in the local one.
	CronLocalTime bool

	Log logging.Options
}

// RemoteAdapter is another adapter to which requests are forwarded.
type RemoteAdapter struct {
	Enabled bool
	// Namespace, Service and Port are those of its Service.
	Namespace, Service string
	Port               int
	// Address is dialed instead of the name of the Service.
	Address string
	// CAFile contains the authorities that verify its certificate; empty for the system's.
	CAFile string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	namespace := os.Getenv("CRANE_SYSTEM_NAMESPACE")
	if namespace == "" {
		namespace = defaultNamespace
	}

	server := options.NewCustomMetricsAdapterServerOptions()
	server.SecureServing.BindPort = 6443
	server.SecureServing.ServerCert.CertDirectory = "" // Without files the adapter creates its certificate.

	// The HPA controller costs one access review in this time. A revoked permission remains effective for as long.
	server.Authorization.AllowCacheTTL = time.Minute
	history := promflags.New()

	// The API server waits a minute for a response, and an HPA repeats its request after 15 s.
	history.Timeout = 15 * time.Second
	return &Options{
		Prometheus:        history,
		ListInterval:      time.Minute,
		MaxAge:            10 * time.Minute,
		Remote:            RemoteAdapter{Port: 6443},
		Server:            server,
		Namespace:         namespace,
		APIQPS:            300,
		APIBurst:          400,
		DiscoveryInterval: 10 * time.Minute,
		Service:           "metric-adapter",
		CertificateSecret: "metric-adapter-certificate",
		Log:               logging.DefaultOptions(),
	}
}

// AddFlags adds a flag for each option to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.Server.SecureServing.AddFlags(fs)
	o.Server.Authentication.AddFlags(fs)
	o.Server.Authorization.AddFlags(fs)
	o.Server.Audit.AddFlags(fs)
	fs.StringVar(&o.Kubeconfig, "lister-kubeconfig", o.Kubeconfig,
		"Kubeconfig file for the API server, also for authentication and authorization unless their flags are set. "+
			"Empty: the service account of the pod.")

	fs.Float32Var(&o.APIQPS, "api-qps", o.APIQPS, "Average number of requests to the API server per second.")
	fs.IntVar(&o.APIBurst, "api-burst", o.APIBurst, "Maximum burst of requests to the API server.")
	fs.DurationVar(&o.DiscoveryInterval, "discovery-interval", o.DiscoveryInterval,
		"Interval at which the resources of the cluster and the metrics of a remote adapter are discovered.")
	fs.StringVar(&o.Service, "service-name", o.Service, "Service through which the API server calls the adapter; the certificate is issued for it.")
	fs.StringVar(&o.CertificateSecret, "certificate-secret", o.CertificateSecret,
		"Secret in Crane's namespace with the certificate that the adapter issues and renews. Unused with --tls-cert-file.")
	o.Prometheus.AddAccessFlags(fs)
	fs.StringVar(&o.RulesFile, "prometheus-adapter-config", o.RulesFile,
		"File with prometheus-adapter's configuration, whose rules define external and custom metrics. It is reloaded when it changes. Empty: none.")

	fs.StringVar(&o.RulesLabels, "prometheus-adapter-extension-labels", o.RulesLabels,
		"Label matchers added to each query of a rule, as k=v,k2=v2.")
	fs.DurationVar(&o.ListInterval, "metrics-relist-interval", o.ListInterval,
		"Interval at which the series of the rules are listed in Prometheus.")
	fs.DurationVar(&o.MaxAge, "metrics-max-age", o.MaxAge,
		"Maximum age of the newest sample of a series that a rule finds; longer than the interval between two samples. 0: series with a value now.")
	r := &o.Remote
	fs.BoolVar(&r.Enabled, "remote-adapter", r.Enabled, "Forward requests for all other metrics to another adapter.")
	fs.StringVar(&r.Namespace, "remote-adapter-service-namespace", r.Namespace, "Namespace of the other adapter's Service.")
	fs.StringVar(&r.Service, "remote-adapter-service-name", r.Service,
		"Name of the other adapter's Service. Its certificate must be valid for <name>.<namespace>.svc.")

	fs.IntVar(&r.Port, "remote-adapter-service-port", r.Port, "Port of the other adapter's Service.")
	fs.StringVar(&r.CAFile, "remote-adapter-ca-file", r.CAFile,
		"PEM file with the authorities that verify the certificate of the other adapter, reloaded when it changes. Empty: the system's.")
	fs.StringVar(&r.Address, "remote-adapter-address", r.Address,
		"Host and port to connect to instead of the name of the Service. The certificate must still be valid for that name.")
	fs.BoolVar(&o.CronLocalTime, "ehpa-cron-local-time", o.CronLocalTime,
		"Evaluate cron schedules without a time zone in the local one, as gocrane does, instead of UTC. Set it as for craned.")
	o.Log.AddFlags(fs)
	fs.String("msg", "", "")
	_ = fs.MarkDeprecated("msg", "it has no effect") // It fails only where the flag does not exist.
}

// managesCertificate reports whether the adapter creates its certificate itself.
func (o *Options) managesCertificate() bool {
	files := o.Server.SecureServing.ServerCert
	return files.CertKey.CertFile == "" && files.CertDirectory == ""
}

func flagPath(name string) *field.Path { return field.NewPath("--" + name) }

// Validate returns all invalid options, each error with its flag. It opens neither files nor connections.
func (o *Options) Validate() field.ErrorList {
	var errs field.ErrorList
	for _, err := range o.Server.Validate() {
		errs = append(errs, field.Invalid(field.NewPath("server"), "", err.Error()))
	}

	if o.Server.SecureServing.BindPort == 0 && o.Server.SecureServing.Listener == nil {
		errs = append(errs, field.Invalid(flagPath("secure-port"), 0, "must not be 0"))
	}

	if o.APIQPS <= 0 {
		errs = append(errs, field.Invalid(flagPath("api-qps"), o.APIQPS, "must be greater than 0"))
	}

	if o.APIBurst <= 0 {
		errs = append(errs, field.Invalid(flagPath("api-burst"), o.APIBurst, "must be greater than 0"))
	}

	if o.DiscoveryInterval <= 0 {
		errs = append(errs, field.Invalid(flagPath("discovery-interval"), o.DiscoveryInterval.String(), "must be greater than 0"))
	}

	for name, value := range map[string]string{"service-name": o.Service, "certificate-secret": o.CertificateSecret} {
		if reasons := validation.IsDNS1123Subdomain(value); len(reasons) > 0 {
			errs = append(errs, field.Invalid(flagPath(name), value, reasons[0]))
		}
	}

	errs = append(errs, o.validateRules()...)
	errs = append(errs, o.validateRemote()...)
	return append(errs, o.Log.Validate()...)
}

func (o *Options) validateRules() field.ErrorList {
	var errs field.ErrorList
	if o.ListInterval <= 0 {
		errs = append(errs, field.Invalid(flagPath("metrics-relist-interval"), o.ListInterval.String(), "must be greater than 0"))
	}
	if o.MaxAge < 0 {
		errs = append(errs, field.Invalid(flagPath("metrics-max-age"), o.MaxAge.String(), "must not be negative"))
	}
	if _, err := prometheus.ParseMatchers(o.RulesLabels); err != nil {
		errs = append(errs, field.Invalid(flagPath("prometheus-adapter-extension-labels"), o.RulesLabels, err.Error()))
	}
	if o.RulesFile != "" {
		errs = append(errs, o.Prometheus.Validate()...)
	}

	return errs
}

func (o *Options) validateRemote() field.ErrorList {
	r := o.Remote
	if !r.Enabled {
		return nil
	}

	var errs field.ErrorList
	for name, value := range map[string]string{"remote-adapter-service-namespace": r.Namespace, "remote-adapter-service-name": r.Service} {
		if reasons := validation.IsDNS1123Label(value); len(reasons) > 0 {
			errs = append(errs, field.Invalid(flagPath(name), value, reasons[0]))
		}
	}

	for _, reason := range validation.IsValidPortNum(r.Port) {
		errs = append(errs, field.Invalid(flagPath("remote-adapter-service-port"), r.Port, reason))
	}

	if r.Address != "" {
		if _, _, err := net.SplitHostPort(r.Address); err != nil {
			errs = append(errs, field.Invalid(flagPath("remote-adapter-address"), r.Address, err.Error()))
		}
	}

	// The adapter would forward each request to itself until its slots are used up.
	if r.Service == o.Service && r.Namespace == o.Namespace {
		errs = append(errs, field.Invalid(flagPath("remote-adapter-service-name"), r.Service, "must not be this adapter itself"))
	}

	return errs
}
