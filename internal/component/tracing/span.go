// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing creates spans of OpenTelemetry. Without a provider, which is the default, spans cost nothing and go nowhere.
package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	basetracing "k8s.io/component-base/tracing"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
)

// scope is the name of the instrumentation.
const scope = "crane.io/crane"

// Start begins a span with attributes as pairs of names and values. The caller ends it with End.
func Start(ctx context.Context, name string, pairs ...string) (context.Context, trace.Span) {
	var attributes []attribute.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		attributes = append(attributes, attribute.String(pairs[i], pairs[i+1]))
	}

	return otel.Tracer(scope).Start(ctx, name, trace.WithAttributes(attributes...))
}

// End ends a span with the error of what it measured.
func End(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}

	span.End()
}

// Export sends a share of the traces, in millionths, to an endpoint of OTLP over gRPC, until the returned function is called. Spans that do not
// fit in the queue of 2048 are dropped. The connection has no TLS.
func Export(ctx context.Context, service, version, endpoint string, perMillion int32) (stop func(context.Context) error, err error) {
	provider, err := basetracing.NewProvider(ctx, &tracingv1.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: &perMillion}, nil,
		[]resource.Option{resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version))})
	if err != nil {
		return nil, fmt.Errorf("exporting traces to %s: %w", endpoint, err)
	}

	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}
