// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"net"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/metrics/prometheus"
)

func flagPath(name string) *field.Path { return field.NewPath("--" + name) }

// Validate returns all invalid options, each error with its flag. It opens neither files nor connections.
func (o *Options) Validate() field.ErrorList {
	var errs field.ErrorList
	for _, err := range o.Server.Validate() {
		errs = append(errs, field.Invalid(field.NewPath("server"), "", err.Error()))
	}
	if o.Server.SecureServing.BindPort == 0 && o.Server.SecureServing.Listener == nil {
		errs = append(errs, field.Invalid(flagPath("secure-port"), 0, "the adapter has to serve"))
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
	if r.Service == o.Service && r.Namespace == o.Namespace {
		errs = append(errs, field.Invalid(flagPath("remote-adapter-service-name"), r.Service, "it is this adapter itself"))
	}
	return errs
}
