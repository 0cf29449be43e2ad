// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/apiserver"
	generatedcore "sigs.k8s.io/custom-metrics-apiserver/pkg/generated/openapi/core"
	generatedcustommetrics "sigs.k8s.io/custom-metrics-apiserver/pkg/generated/openapi/custommetrics"
	generatedexternalmetrics "sigs.k8s.io/custom-metrics-apiserver/pkg/generated/openapi/externalmetrics"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/component/version"
)

const serverName = "crane-metric-adapter"

// serverConfig contains the parts of a server.
type serverConfig struct {
	custom   provider.CustomMetricsProvider
	external provider.ExternalMetricsProvider
	// certificate is the serving certificate; nil where flags name one.
	certificate dynamiccertificates.CertKeyContentProvider
	ready       []healthz.HealthChecker
}

// newServer builds the API server with delegated authentication and authorization.
func newServer(o *Options, s serverConfig) (*genericapiserver.GenericAPIServer, error) {
	config := genericapiserver.NewConfig(apiserver.Codecs)
	if s.certificate != nil {
		o.Server.SecureServing.ServerCert.GeneratedCert = s.certificate
	}

	if err := o.Server.SecureServing.ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("serving: %w", err)
	}

	if err := o.Server.Authentication.ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}

	if err := o.Server.Authorization.ApplyTo(&config.Authorization); err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}

	// One review of a whole group replaces those of its metrics.
	config.Authorization.Authorizer = groupAuthorizer{config.Authorization.Authorizer}
	if err := o.Server.Audit.ApplyTo(config); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}

	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openAPIDefinitions, openapinamer.NewDefinitionNamer(apiserver.Scheme))
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openAPIDefinitions, openapinamer.NewDefinitionNamer(apiserver.Scheme))
	config.OpenAPIConfig.Info.Title = serverName
	config.OpenAPIV3Config.Info.Title = serverName
	config.OpenAPIConfig.Info.Version = version.String()
	config.OpenAPIV3Config.Info.Version = version.String()
	config.EnableMetrics = true
	config.AddReadyzChecks(s.ready...)

	adapter, err := (&apiserver.Config{GenericConfig: config}).Complete(nil).New(serverName, s.custom, s.external)
	if err != nil {
		return nil, fmt.Errorf("building the API server: %w", err)
	}

	return adapter.GenericAPIServer, nil
}

func openAPIDefinitions(ref openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
	all := generatedcore.GetOpenAPIDefinitions(ref)
	maps.Copy(all, generatedcustommetrics.GetOpenAPIDefinitions(ref))
	maps.Copy(all, generatedexternalmetrics.GetOpenAPIDefinitions(ref))

	return all
}

// groupAuthorizer first checks whether a user may read every metric of a group in every namespace. The decision is cached
// (--authorization-webhook-cache-authorized-ttl), so that the HPA controller costs one access review in that time, however many
// metrics it reads. For other users the metric alone is checked.
type groupAuthorizer struct{ authorizer.Authorizer }

// Authorize implements authorizer.Authorizer.
func (w groupAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsResourceRequest() && a.GetVerb() != "*" && isMetricsGroup(a.GetAPIGroup()) {
		every := authorizer.AttributesRecord{
			User:            a.GetUser(),
			Verb:            a.GetVerb(),
			APIGroup:        a.GetAPIGroup(),
			APIVersion:      a.GetAPIVersion(),
			Resource:        "*",
			ResourceRequest: true,
		}

		if decision, reason, err := w.Authorizer.Authorize(ctx, every); err == nil && decision == authorizer.DecisionAllow {
			return decision, reason, nil
		}
	}

	return w.Authorizer.Authorize(ctx, a)
}
