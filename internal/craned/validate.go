// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/component/featuregate"
)

// Validate returns all errors of the options, each with its flag. It opens no file and no connection.
func (o *Options) Validate() field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, o.validateAPI()...)
	errs = append(errs, o.LeaderElection.validate()...)
	errs = append(errs, o.validateDataSources()...)
	errs = append(errs, o.validateControllers()...)
	errs = append(errs, o.WebAPI.validate()...)
	errs = append(errs, o.Prediction.validate()...)
	errs = append(errs, o.Isolation.validate()...)

	errs = append(errs, o.NodeLoad.validate()...)
	errs = append(errs, o.Autoscaling.validate()...)
	errs = append(errs, o.VerticalAutoscaling.validate()...)
	errs = append(errs, validateRebalance(o.Rebalance)...)
	errs = append(errs, o.OOM.validate()...)
	errs = append(errs, o.Adoption.validate()...)
	errs = append(errs, o.Webhook.validate(o.FeatureGates.Enabled(featuregate.QOSInitializer))...)
	errs = append(errs, o.Notifications.validate()...)
	errs = append(errs, o.Diagnostics.validate(o.MetricsSecure)...)

	// Settings without a type of their own.
	if o.RecommendationOutdated <= 0 {
		errs = append(errs, notPositive("recommendation-outdate-interval", o.RecommendationOutdated))
	}
	if o.CostInterval < shortestCostInterval {
		errs = append(errs, field.Invalid(flag("cost-interval"), o.CostInterval.String(), "must be at least "+shortestCostInterval.String()))
	}

	return append(errs, o.Log.Validate()...)
}

func flag(name string) *field.Path { return field.NewPath("--" + name) }

func (o *Options) validateAPI() field.ErrorList {
	var errs field.ErrorList
	if o.APIQPS <= 0 {
		errs = append(errs, field.Invalid(flag("api-qps"), o.APIQPS, "must be more than 0"))
	}

	if o.APIBurst < 1 {
		errs = append(errs, field.Invalid(flag("api-burst"), o.APIBurst, "must be 1 or more"))
	}

	if o.ShutdownDelay < 0 {
		errs = append(errs, field.Invalid(flag("shutdown-delay-duration"), o.ShutdownDelay.String(), "must not be negative"))
	}

	if o.ShutdownTimeout <= 0 {
		errs = append(errs, notPositive("shutdown-timeout", o.ShutdownTimeout))
	}

	for _, msg := range validation.IsDNS1123Label(o.Namespace) {
		errs = append(errs, field.Invalid(field.NewPath("CRANE_SYSTEM_NAMESPACE"), o.Namespace, msg))
	}

	// An empty address of profiles serves none; the others say 0 for that.
	errs = append(errs, validateAddress("metrics-bind-address", o.MetricsBindAddress)...)
	if o.PprofBindAddress != "" {
		errs = append(errs, validateAddress("pprof-bind-address", o.PprofBindAddress)...)
	}

	return append(errs, validateAddress("health-probe-bind-address", o.HealthProbeBindAddress)...)
}

// validateAddress accepts host:port with either part empty, and 0 for none.
func validateAddress(name, address string) field.ErrorList {
	if address == "0" {
		return nil
	}

	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}

	if err != nil {
		return field.ErrorList{field.Invalid(flag(name), address, "must be host:port, :port, or 0 for none: "+err.Error())}
	}

	return nil
}

func (l LeaderElection) validate() field.ErrorList {
	if !l.Enabled {
		return nil
	}

	var errs field.ErrorList
	if l.RetryPeriod <= 0 {
		errs = append(errs, notPositive("lease-retry-period", l.RetryPeriod))
	}

	// client-go refuses these two as well, but with names of its own fields.
	if l.LeaseDuration <= l.RenewDeadline {
		errs = append(errs, field.Invalid(flag("lease-duration"), l.LeaseDuration.String(),
			"must be more than --lease-renew-period ("+l.RenewDeadline.String()+")"))
	}

	if float64(l.RenewDeadline) <= 1.2*float64(l.RetryPeriod) {
		errs = append(errs, field.Invalid(flag("lease-renew-period"), l.RenewDeadline.String(),
			"must be more than 1.2 times --lease-retry-period ("+l.RetryPeriod.String()+")"))
	}

	if l.LeaseDuration < time.Second {
		errs = append(errs, field.Invalid(flag("lease-duration"), l.LeaseDuration.String(),
			"must be 1s or more: the lease counts whole seconds"))
	}

	return errs
}

func (o *Options) validateDataSources() field.ErrorList {
	var errs field.ErrorList
	if len(o.DataSources) == 0 {
		errs = append(errs, field.Required(flag("datasource"), "want "+knownDataSources()))
	}

	for i, name := range o.DataSources {
		path := flag("datasource").Index(i)
		if _, ok := dataSourceName(name); !ok {
			errs = append(errs, field.NotSupported(path, name, dataSourceNames()))
		} else if slices.Contains(o.DataSources[:i], name) {
			errs = append(errs, field.Duplicate(path, name))
		}
	}

	// Settings of sources that are not used may be anything.
	if slices.Contains(o.DataSources, dataSourceProm) {
		errs = append(errs, o.Prometheus.Validate()...)
	}

	if slices.Contains(o.DataSources, dataSourceGRPC) {
		if o.GRPC.Address == "" {
			errs = append(errs, field.Required(flag("grpc-ds-address"), "the data source grpc needs it"))
		}
		if o.GRPC.Insecure && o.GRPC.CAFile != "" {
			errs = append(errs, field.Forbidden(flag("grpc-ds-insecure"), "--grpc-ds-ca-file is set as well"))
		}
		if o.GRPC.Timeout <= 0 {
			errs = append(errs, notPositive("grpc-ds-timeout", o.GRPC.Timeout))
		}
	}

	if slices.Contains(o.DataSources, dataSourceCSV) && o.CSVDir == "" {
		errs = append(errs, field.Required(flag("csv-dir"), "the data source csv needs it"))
	}

	return errs
}

func (o *Options) validateControllers() field.ErrorList {
	var errs field.ErrorList
	for i, entry := range o.Controllers {
		name := strings.TrimPrefix(entry, "-")
		if entry != "*" && !slices.Contains(controllerNames(), name) {
			errs = append(errs, field.NotSupported(flag("controllers").Index(i), entry, append([]string{"*"}, controllerNames()...)))
		}
	}

	return errs
}

func notPositive(name string, d time.Duration) *field.Error {
	return field.Invalid(flag(name), d.String(), "must be more than 0")
}
