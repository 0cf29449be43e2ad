// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"os"
	"time"

	"github.com/spf13/pflag"
	corefeaturegate "k8s.io/component-base/featuregate"

	"crane.io/crane/internal/component/deprecatedflags"
	"crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/component/logging"
	"crane.io/crane/internal/metrics/promflags"
	"crane.io/crane/internal/nodeload/controller/rebalancer"
	"crane.io/crane/pkg/recommend"
)

// defaultNamespace is Crane's namespace if CRANE_SYSTEM_NAMESPACE is not set.
const defaultNamespace = "crane-system"

// defaultConfigurationFile is the path at which gocrane's manifests mount the recommendation configuration.
const defaultConfigurationFile = "/tmp/recommendation-framework/recommendation_configuration.yaml"

// Options are the settings of craned. Flags that gocrane has keep gocrane's names and defaults.
type Options struct {
	// ConfigFile has settings that the command line overrides.
	ConfigFile string
	Kubeconfig string
	// Namespace is Crane's own namespace, with the lease and the recommendations for cluster-scoped targets.
	Namespace string
	APIQPS    float32
	APIBurst  int

	MetricsBindAddress string
	// MetricsSecure serves metrics over TLS to clients that the API server permits to get /metrics.
	MetricsSecure bool
	// MetricsCertDir has tls.crt and tls.key; empty for a certificate generated at start.
	MetricsCertDir string
	// PprofBindAddress is the address of profiles; empty for none.
	PprofBindAddress       string
	HealthProbeBindAddress string
	// ShutdownDelay is the time between a signal and the stop of craned, during which /readyz fails.
	ShutdownDelay   time.Duration
	ShutdownTimeout time.Duration

	LeaderElection LeaderElection

	DataSources []string
	Prometheus  Prometheus
	GRPC        GRPC
	// CSVDir has the files of the data source csv.
	CSVDir string
	WebAPI WebAPI

	RecommendationConfigurationFile string
	// recommenders are those beside the built-in ones.
	recommenders []recommend.Recommender
	// requireConfiguration is set by Complete if the flag was set, so that the file must exist.
	requireConfiguration bool
	// RecommendationOutdated is the age from which metrics count a recommendation as OutDate.
	RecommendationOutdated time.Duration

	// PriceBook is the file with the prices of nodes; empty for the built-in prices.
	PriceBook string
	// CostInterval is the interval between two accountings of the cost.
	CostInterval time.Duration

	Prediction  Prediction
	Isolation   Isolation
	NodeLoad    NodeLoad
	Autoscaling Autoscaling
	// VerticalAutoscaling are the settings of EffectiveVerticalPodAutoscalers.
	VerticalAutoscaling VerticalAutoscaling
	Rebalance           rebalancer.Settings
	OOM                 OOM
	Adoption            Adoption
	Webhook             Webhook
	Notifications       Notifications
	Diagnostics         Diagnostics

	Controllers  []string
	FeatureGates corefeaturegate.MutableFeatureGate

	Log logging.Options
}

// LeaderElection are the settings of the leader election lease.
type LeaderElection struct {
	Enabled bool
	// LeaseDuration is how long a standby waits after the last renewal before it takes over.
	LeaseDuration time.Duration
	// RenewDeadline is how long the leader retries a renewal before it gives up.
	RenewDeadline time.Duration
	// RetryPeriod is the interval between two attempts.
	RetryPeriod time.Duration
}

// Prometheus are the settings of the Prometheus client.
type Prometheus = promflags.Options

// GRPC are the settings of the data source with gocrane's protocol.
type GRPC struct {
	Address string
	Timeout time.Duration
	// CAFile contains the authorities that verify the server. Insecure connects to remote servers without TLS.
	CAFile   string
	Insecure bool
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	namespace := os.Getenv("CRANE_SYSTEM_NAMESPACE")
	if namespace == "" {
		namespace = defaultNamespace
	}

	return &Options{
		Namespace:              namespace,
		APIQPS:                 300,
		APIBurst:               400,
		MetricsBindAddress:     ":8080",
		MetricsSecure:          true,
		HealthProbeBindAddress: ":8081",
		ShutdownTimeout:        20 * time.Second,
		LeaderElection: LeaderElection{
			Enabled:       true,
			LeaseDuration: 15 * time.Second,
			RenewDeadline: 10 * time.Second,
			RetryPeriod:   2 * time.Second,
		},
		DataSources:                     []string{dataSourceProm},
		Prometheus:                      promflags.New(),
		GRPC:                            GRPC{Address: "localhost:50051", Timeout: time.Minute},
		WebAPI:                          newWebAPI(),
		RecommendationConfigurationFile: defaultConfigurationFile,
		RecommendationOutdated:          24 * time.Hour,
		CostInterval:                    5 * time.Minute,
		Prediction:                      newPrediction(),
		Isolation:                       Isolation{Label: "namespace"},
		NodeLoad:                        newNodeLoad(),
		Autoscaling:                     newAutoscaling(),
		VerticalAutoscaling:             newVerticalAutoscaling(),
		Rebalance:                       rebalancer.DefaultSettings(),
		OOM:                             newOOM(),
		Adoption:                        newAdoption(),
		Webhook:                         newWebhook(),
		Notifications:                   newNotifications(),
		Diagnostics:                     newDiagnostics(),
		Controllers:                     []string{"*"},
		FeatureGates:                    featuregate.New(),
		Log:                             logging.DefaultOptions(),
	}
}

// AddFlags adds a flag for each option to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(deprecatedflags.NormalizeDashes)
	fs.StringVar(&o.ConfigFile, configFlag, o.ConfigFile,
		"YAML file with values of flags, keyed by their names. The command line takes precedence.")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig to reach the API server with. Empty: the service account in a cluster, else the usual loading rules.")
	fs.Float32Var(&o.APIQPS, "api-qps", o.APIQPS, "Average number of requests to the API server per second.")
	fs.IntVar(&o.APIBurst, "api-burst", o.APIBurst, "Maximum burst of requests to the API server.")

	o.addMetricsFlags(fs)
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress,
		"Address that serves /healthz and /readyz; 0 serves none.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"Time to keep serving, with a failing /readyz, after a termination signal, so that the API server stops sending webhook requests.")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout,
		"Grace period for running work after a termination signal.")

	fs.BoolVar(&o.LeaderElection.Enabled, "leader-elect", o.LeaderElection.Enabled,
		"Run the controllers only on the replica that holds the lease.")
	fs.DurationVar(&o.LeaderElection.LeaseDuration, "lease-duration", o.LeaderElection.LeaseDuration,
		"Time after the last renewal at which a standby may take over.")
	fs.DurationVar(&o.LeaderElection.RenewDeadline, "lease-renew-period", o.LeaderElection.RenewDeadline,
		"Time for which the leader tries to renew its lease before it stops leading.")
	fs.DurationVar(&o.LeaderElection.RetryPeriod, "lease-retry-period", o.LeaderElection.RetryPeriod,
		"Interval between attempts to acquire or renew the lease.")

	fs.StringSliceVar(&o.DataSources, "datasource", o.DataSources,
		"Data sources, the preferred one first: "+knownDataSources()+". The first one that can answer a query serves it.")
	o.Prometheus.AddFlags(fs)
	fs.StringVar(&o.CSVDir, "csv-dir", o.CSVDir, "Directory with the files of the data source csv.")
	fs.StringVar(&o.GRPC.Address, "grpc-ds-address", o.GRPC.Address, "Address of the data source grpc. Connections beyond the loopback interface use TLS.")
	fs.StringVar(&o.GRPC.CAFile, "grpc-ds-ca-file", o.GRPC.CAFile, "PEM file with the authorities of the data source grpc, instead of the system's.")
	fs.BoolVar(&o.GRPC.Insecure, "grpc-ds-insecure", o.GRPC.Insecure,
		"Connect to the data source grpc without TLS: the network can read and change samples.")
	fs.DurationVar(&o.GRPC.Timeout, "grpc-ds-timeout", o.GRPC.Timeout, "Timeout of one query to the data source grpc.")
	o.WebAPI.addFlags(fs)

	fs.StringVar(&o.RecommendationConfigurationFile, "recommendation-configuration-file", o.RecommendationConfigurationFile,
		"File of kind RecommendationConfiguration. If the default file does not exist, the built-in configuration is used.")
	fs.DurationVar(&o.RecommendationOutdated, "recommendation-outdate-interval", o.RecommendationOutdated,
		"Age from which crane_analysis_recommendations_status reports a recommendation as OutDate.")
	fs.StringVar(&o.PriceBook, "price-book", o.PriceBook,
		"Price book file (YAML or JSON). If empty, built-in approximate prices are used.")

	fs.DurationVar(&o.CostInterval, "cost-interval", o.CostInterval,
		"Interval at which the cost of the cluster is computed, for metrics and savings.")
	o.Prediction.addFlags(fs)
	o.Isolation.addFlags(fs)
	o.NodeLoad.addFlags(fs)

	o.Autoscaling.addFlags(fs)
	o.VerticalAutoscaling.addFlags(fs)
	addRebalanceFlags(fs, &o.Rebalance)
	o.OOM.addFlags(fs)
	o.Adoption.addFlags(fs)

	o.Webhook.addFlags(fs)
	o.Notifications.addFlags(fs)
	o.Diagnostics.addFlags(fs)
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		"Controllers to run: * for all, NAME to add one, -NAME to leave one out. Known: "+knownControllers()+".")
	o.FeatureGates.AddFlag(fs)

	o.Log.AddFlags(fs)
	deprecatedflags.Add(fs, deprecatedFlags()) // After all others.
}

func (o *Options) addMetricsFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress,
		"Address that serves /metrics; 0 serves none.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
		"Serve /metrics over TLS, to clients that the API server permits to get /metrics. Metrics name every workload and its "+
			"cost. Set false only for scrapers without TLS in a closed network.")
	fs.StringVar(&o.MetricsCertDir, "metrics-cert-dir", o.MetricsCertDir,
		"Directory with tls.crt and tls.key for /metrics, read again when they change. Empty: a certificate is made at the start.")
	fs.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress,
		"Address that serves profiles at /debug/pprof/, without authentication: best on loopback, as 127.0.0.1:6060. Empty: none.")
}
