// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/component/tracing"
	"crane.io/crane/internal/component/version"
)

// traceFlushTimeout bounds the export of the last spans at the end.
const traceFlushTimeout = 5 * time.Second

// Diagnostics are the settings of profiles and traces.
type Diagnostics struct {
	// Profiling serves profiles beside the metrics.
	Profiling bool
	// TracingEndpoint is the host and port of a server of OTLP over gRPC; empty for no traces.
	TracingEndpoint string
	// TracingSamplingRatePerMillion is the number of traces that are exported of a million.
	TracingSamplingRatePerMillion int32
}

func newDiagnostics() Diagnostics { return Diagnostics{TracingSamplingRatePerMillion: 100_000} }

func (d *Diagnostics) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&d.Profiling, "enable-profiling", d.Profiling,
		"Serve /debug/pprof/ at --metrics-bind-address as well, over TLS, to clients that the API server permits to get that path. Needs --metrics-secure.")
	fs.StringVar(&d.TracingEndpoint, "tracing-endpoint", d.TracingEndpoint,
		"Host and port of an OpenTelemetry collector, for OTLP over gRPC without TLS: best on the node. Gets traces of passes, forecasts and adoptions, which name "+
			"workloads. Empty: no traces.")
	fs.Int32Var(&d.TracingSamplingRatePerMillion, "tracing-sampling-rate-per-million", d.TracingSamplingRatePerMillion,
		"Number of exported traces per million.")
}

func (d *Diagnostics) validate(secure bool) field.ErrorList {
	var errs field.ErrorList
	if d.Profiling && !secure {
		errs = append(errs, field.Invalid(flag("enable-profiling"), d.Profiling, "needs --metrics-secure: profiles are served with its authorization alone"))
	}
	if d.TracingEndpoint != "" {
		errs = append(errs, validateAddress("tracing-endpoint", d.TracingEndpoint)...)
	}
	if r := d.TracingSamplingRatePerMillion; r < 1 || r > 1_000_000 {
		errs = append(errs, field.Invalid(flag("tracing-sampling-rate-per-million"), r, "must be 1 to 1000000"))
	}

	return errs
}

// profileHandlers returns the pages of profiles by path. The command line is not served.
func profileHandlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/debug/pprof/": http.HandlerFunc(pprof.Index), "/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"/debug/pprof/symbol": http.HandlerFunc(pprof.Symbol), "/debug/pprof/trace": http.HandlerFunc(pprof.Trace),
	}
}

// addTracing exports traces until the manager stops.
func addTracing(ctx context.Context, d *dependencies) error {
	settings := d.Diagnostics
	if settings.TracingEndpoint == "" {
		return nil
	}

	stop, err := tracing.Export(ctx, "craned", version.String(), settings.TracingEndpoint, settings.TracingSamplingRatePerMillion)
	if err != nil {
		return fmt.Errorf("--tracing-endpoint: %w", err)
	}

	err = d.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()

		// The last spans are still to be sent when the context has ended.
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlushTimeout)
		defer cancel()

		if err := stop(flushCtx); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "exporting the last traces")
		}

		return nil
	}))
	if err != nil {
		return fmt.Errorf("adding the export of traces: %w", err)
	}

	return nil
}
