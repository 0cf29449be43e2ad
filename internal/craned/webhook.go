// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/adoption/optoutlist"
	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/craned/admission"
	"crane.io/crane/internal/craned/qosinitializer"
	"crane.io/crane/internal/kube/certificates"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/internal/kube/slimclient"
)

// Names of objects in config/webhook, and the Service of the metrics.
const (
	webhookService    = "craned-webhook"
	metricsService    = "craned"
	webhookConfig     = "crane"
	podWebhookConfig  = "crane-pods"
	certificateSecret = "craned-certificates"
	systemNamespace   = "kube-system"
)

// Webhook are the settings of admission webhooks.
type Webhook struct {
	Enabled bool
	Host    string
	Port    int
	// CertDir has tls.crt and tls.key; empty for certificates that Crane manages itself.
	CertDir string
	// QOSConfigFile is a file of kind QOSConfig, for the feature gate QOSInitializer.
	QOSConfigFile string
}

func newWebhook() Webhook { return Webhook{Enabled: true, Port: 9443} }

func (w *Webhook) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&w.Enabled, "webhook-enabled", w.Enabled, "Serve admission webhooks.")
	fs.StringVar(&w.Host, "webhook-host", w.Host, "Address that serves admission webhooks; empty for all. The certificate is issued for it.")
	fs.IntVar(&w.Port, "webhook-port", w.Port, "Port that serves admission webhooks.")
	fs.StringVar(&w.CertDir, "webhook-cert-dir", w.CertDir,
		"Directory with tls.crt and tls.key for admission webhooks, reloaded when they change. If empty, craned issues and renews certificates itself.")
	fs.StringVar(&w.QOSConfigFile, "qos-config-file", w.QOSConfigFile,
		"File of kind QOSConfig. It defines the additions of the feature gate QOSInitializer to new pods of low CPU priority.")
}

func (w *Webhook) validate(qosInitializer bool) field.ErrorList {
	var errs field.ErrorList
	if !w.Enabled {
		return nil
	}

	if w.Port < 1 || w.Port > 65535 {
		errs = append(errs, field.Invalid(flag("webhook-port"), w.Port, "must be from 1 to 65535; --webhook-enabled=false serves none"))
	}
	if w.Host != "" && net.ParseIP(w.Host) == nil {
		errs = append(errs, field.Invalid(flag("webhook-host"), w.Host, "must be an IP address"))
	}
	if qosInitializer && w.QOSConfigFile == "" {
		errs = append(errs, field.Required(flag("qos-config-file"), "the feature gate QOSInitializer is on"))
	}

	return errs
}

// hosts returns the names under which the API server calls, and that under which Prometheus recognizes the metrics.
func (w *Webhook) hosts(namespace string) []string {
	hosts := []string{webhookService + "." + namespace + ".svc", metricsService + "." + namespace + ".svc"}
	if ip := net.ParseIP(w.Host); ip != nil && !ip.IsUnspecified() {
		hosts = append(hosts, ip.String())
	}

	return hosts
}

// addWebhooks adds the admission webhooks, after all features with a mutator of pods. They are served on every replica.
func addWebhooks(_ context.Context, d *dependencies) error {
	if !d.Webhook.Enabled {
		return nil
	}

	chain := newPodChain(d)
	endpoints, err := admission.Endpoints(admission.CachedFacts{
		Namespace:           d.Namespace,
		Cache:               d.mgr.GetCache(),
		ValidateRecommender: d.validateRecommender,
		DisabledKinds:       d.disabledKinds(),
	}, chain, admission.EvictionGuard{
		Pods: d.mgr.GetAPIReader(), OptOuts: func(ctx context.Context) (optout.Set, error) {
			return optoutlist.Read(ctx, d.mgr.GetCache(), d.mgr.GetScheme())
		},
	})
	if err != nil {
		return fmt.Errorf("building the webhooks: %w", err)
	}

	options := admission.ServerOptions{
		Host:     d.Webhook.Host,
		Port:     d.Webhook.Port,
		CertDir:  d.Webhook.CertDir,
		Draining: d.mgr.probes.draining.Load,
	}

	if d.mgr.certificates != nil {
		options.Rotator = d.mgr.certificates
		if err := metricsRegistry().Register(options.Rotator); err != nil {
			return fmt.Errorf("registering the metrics of certificates: %w", err)
		}
	}

	server := admission.NewServer(options, endpoints)
	if err := metricsRegistry().Register(chain); err != nil {
		return fmt.Errorf("registering the metrics of pod mutations: %w", err)
	}

	if err := d.mgr.Add(server); err != nil {
		return fmt.Errorf("adding the webhooks: %w", err)
	}

	if err := d.mgr.AddReadyzCheck("webhooks", server.Check); err != nil {
		return fmt.Errorf("adding the readiness check of webhooks: %w", err)
	}

	return nil
}

// newPodChain returns the chain of the mutators of new pods. Until the state of the switch is known, new pods get the values of their template,
// as without craned. The readiness check "pause" fails meanwhile, so that the API server calls other replicas through the Service.
func newPodChain(d *dependencies) *podwebhook.Chain {
	chain := podwebhook.NewChain(d.mutators, systemNamespace, d.Namespace)
	chain.Stopped = d.pause.Stopped
	chain.OptedOut = func(ctx context.Context, pod *corev1.Pod) (bool, error) {
		return optoutlist.ExcludesPod(ctx, d.mgr.GetCache(), pod)
	}

	return chain
}

// addQOSInitializer adds the mutator of new pods of low CPU priority.
func addQOSInitializer(ctx context.Context, d *dependencies) error {
	if !d.Webhook.Enabled {
		ctrl.LoggerFrom(ctx).Info("feature gate QOSInitializer has no effect: webhooks are not served")
		return nil
	}

	file, err := configfile.Open(d.Webhook.QOSConfigFile, configfile.DefaultInterval, wallclock.New(), qosinitializer.Parse)
	if err != nil {
		return fmt.Errorf("--qos-config-file: %w", err)
	}

	log := ctrl.LoggerFrom(ctx).WithValues("file", d.Webhook.QOSConfigFile)
	follow := onEveryReplica(func(ctx context.Context) error {
		file.Run(ctx, configfile.Observer[qosinitializer.Config]{
			Loaded:   func(qosinitializer.Config) { log.Info("loaded QOSConfig") },
			Rejected: func(err error) { log.Error(err, "loading QOSConfig; the old one stays in force") },
		})

		return nil
	})

	// Every replica serves the webhook, so all of them follow the file and the PodQOSs.
	store := qosinitializer.PodQOSLister{Cache: d.mgr.GetCache()}
	for _, r := range []manager.Runnable{follow, store} {
		if err := d.mgr.Add(r); err != nil {
			return fmt.Errorf("adding the QOSInitializer: %w", err)
		}
	}

	d.mutators = append(d.mutators, qosinitializer.Mutator{Config: file.Content, PodQOSs: store.List})
	return nil
}

// onEveryReplica is a runnable for standbys too.
type onEveryReplica func(context.Context) error

func (f onEveryReplica) Start(ctx context.Context) error { return f(ctx) }

func (onEveryReplica) NeedLeaderElection() bool { return false }

// newCertificateRotator returns what issues and renews craned's certificates; nil without webhooks, and with files in its place. The server of the
// webhooks runs it.
func newCertificateRotator(config *rest.Config, o *Options) (*certificates.Rotator, error) {
	if !o.Webhook.Enabled || o.Webhook.CertDir != "" {
		return nil, nil
	}

	clients, err := slimclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of certificates: %w", err)
	}

	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of webhook configurations: %w", err)
	}

	// The API server calls both kinds of webhooks with the bundle in their configurations.
	rotator, err := certificates.New(certificates.Config{
		Clients:   clients,
		Dynamic:   objects,
		Namespace: o.Namespace,
		Secret:    certificateSecret,
		Hosts:     o.Webhook.hosts(o.Namespace),
		Targets: []certificates.Target{
			certificates.ValidatingWebhooks(webhookConfig), certificates.MutatingWebhooks(webhookConfig),
			certificates.MutatingWebhooks(podWebhookConfig),
		},
		Manager:   "craned-certificates",
		Lifetimes: certificates.DefaultLifetimes(),
		Clock:     wallclock.New(),
	})
	if err != nil {
		return nil, fmt.Errorf("building the rotator of certificates: %w", err)
	}

	return rotator, nil
}
