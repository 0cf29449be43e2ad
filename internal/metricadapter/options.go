// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"os"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/cmd/options"
)

const (
	// defaultNamespace is where Crane lives when CRANE_SYSTEM_NAMESPACE does not say otherwise.
	defaultNamespace = "crane-system"

	logFormatText = "text"
	logFormatJSON = "json"
)

// Options are the settings of metric-adapter. Names and defaults are gocrane's where gocrane had the flag.
type Options struct {
	// Server is how to serve, whom to believe and what to allow.
	Server *options.CustomMetricsAdapterServerOptions
	// Kubeconfig to reach the API server with; empty for the service account of a pod.
	Kubeconfig string
	// Namespace is Crane's own: the certificate and the Service of the adapter are there.
	Namespace string
	APIQPS    float32
	APIBurst  int
	// DiscoveryInterval is the time between two looks at which resources and metrics there are.
	DiscoveryInterval time.Duration

	// Service is the name under which the API server calls the adapter.
	Service string
	// CertificateSecret holds the certificate that replicas share.
	CertificateSecret string
	// CronLocalTime reads cron schedules without a time zone in the local one.
	CronLocalTime bool

	LogFormat string
	Verbosity int
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	namespace := os.Getenv("CRANE_SYSTEM_NAMESPACE")
	if namespace == "" {
		namespace = defaultNamespace
	}
	server := options.NewCustomMetricsAdapterServerOptions()
	server.SecureServing.BindPort = 6443
	server.SecureServing.ServerCert.CertDirectory = "" // Without files the adapter makes its certificate.
	// One review of the HPA controller in this time. Who lost a right reads metrics for so long.
	server.Authorization.AllowCacheTTL = time.Minute
	return &Options{
		Server: server, Namespace: namespace, APIQPS: 300, APIBurst: 400, DiscoveryInterval: 10 * time.Minute,
		Service: "metric-adapter", CertificateSecret: "metric-adapter-certificate",
		LogFormat: logFormatText,
	}
}

// AddFlags adds a flag for each option to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.Server.SecureServing.AddFlags(fs)
	o.Server.Authentication.AddFlags(fs)
	o.Server.Authorization.AddFlags(fs)
	o.Server.Audit.AddFlags(fs)
	fs.StringVar(&o.Kubeconfig, "lister-kubeconfig", o.Kubeconfig,
		"Kubeconfig to reach the API server with; also for authentication and authorization where those name none. "+
			"Empty: the service account of the pod.")
	fs.Float32Var(&o.APIQPS, "api-qps", o.APIQPS, "Requests per second to the API server, on average.")
	fs.IntVar(&o.APIBurst, "api-burst", o.APIBurst, "Requests to the API server at once.")
	fs.DurationVar(&o.DiscoveryInterval, "discovery-interval", o.DiscoveryInterval,
		"Time between two looks at which resources the cluster, and which metrics a remote adapter, serves.")
	fs.StringVar(&o.Service, "service-name", o.Service, "Service through which the API server calls the adapter; the certificate is made for it.")
	fs.StringVar(&o.CertificateSecret, "certificate-secret", o.CertificateSecret,
		"Secret in Crane's namespace with the certificate that the adapter makes and renews. Not used with --tls-cert-file.")
	fs.BoolVar(&o.CronLocalTime, "ehpa-cron-local-time", o.CronLocalTime,
		"Read cron schedules that name no time zone in the local one, as gocrane does. By default they are read in UTC. As craned's.")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Format of the log: text or json.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Verbosity of the log: 0 what happened, 1 and above why.")
	fs.String("msg", "", "")
	_ = fs.MarkDeprecated("msg", "it has no effect") // It fails only where there is no such flag.
}

// ownCertificate tells whether the adapter makes its certificate itself.
func (o *Options) ownCertificate() bool {
	files := o.Server.SecureServing.ServerCert
	return files.CertKey.CertFile == "" && files.CertDirectory == ""
}
