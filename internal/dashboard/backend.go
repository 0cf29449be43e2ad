// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/metrics"
)

// Backend answers for one cluster, or for a directory of files. Guard limits it to the rights of a person. All methods may be called at the same time; they return values that are
// not changed afterward. An error that is a *ResponseError has its own status and reason.
type Backend interface {
	// Name is unique among the backends of a server.
	Name() string
	Cluster(ctx context.Context) contract.Cluster
	// Worklist returns the same pointer until the data change.
	Worklist(ctx context.Context) (*contract.Worklist, error)
	// Overview summarizes a worklist and adds what the whole cluster costs.
	Overview(ctx context.Context, list *contract.Worklist) (contract.Overview, error)
	Workload(ctx context.Context, target contract.Target) (contract.WorkloadDetail, error)
	Series(ctx context.Context, target contract.Target, timeRange SeriesRange) (contract.WorkloadSeries, error)
	WhatIf(ctx context.Context, target contract.Target, container string, settings contract.WhatIfSettings) (contract.WhatIf, error)
	Autoscaling(ctx context.Context) (contract.Autoscaling, error)
	// Forecast returns the history and the forecast of an EffectiveHorizontalPodAutoscaler.
	Forecast(ctx context.Context, namespace, name string) (contract.Forecast, error)
	Nodes(ctx context.Context) (contract.NodeList, error)
	// Placement returns how the scheduler placed a pod.
	Placement(ctx context.Context, namespace, pod string) (contract.Placement, error)
	Cost(ctx context.Context, query CostQuery) (contract.Cost, error)
	Rules(ctx context.Context) (contract.RuleList, error)
	// CreateRule creates a rule, or reports what it would select.
	CreateRule(ctx context.Context, request contract.RuleRequest) (contract.RuleResult, error)
	Health(ctx context.Context) (contract.Health, error)
	// Objects returns a client that reads and writes with the rights of the user.
	Objects() (client.Client, error)
	// Export returns the content of a file and its media type.
	Export(ctx context.Context, format string, items []contract.Item) (content []byte, mediaType string, err error)
	// Act applies an action to each item, or previews it, and returns one result for each.
	Act(ctx context.Context, action string, dryRun bool, items []contract.Item) ([]contract.ItemResult, error)
}

// SeriesRange is the time range of series, and the largest number of points of each.
type SeriesRange struct {
	From, To time.Time
	Points   int
}

// CostQuery is the grouping of costs and the window of the mean usage.
type CostQuery struct {
	By, Label string
	Window    time.Duration
}

// ResponseError is an error with an HTTP status and the body of its response.
type ResponseError struct {
	Status int
	Body   contract.Error
}

// Error implements error.
func (f *ResponseError) Error() string { return f.Body.Message }

// NewResponseError returns a ResponseError; next may be empty.
func NewResponseError(status int, reason contract.Reason, message, next string) *ResponseError {
	return &ResponseError{Status: status, Body: contract.Error{Reason: reason, Message: message, Next: next}}
}

// NotServed returns the failure of data that a backend does not have.
func NotServed(message, next string) *ResponseError {
	return NewResponseError(http.StatusNotFound, contract.ReasonNotServed, message, next)
}

// Starting returns the failure of data that are being read for the first time.
func Starting(message string) *ResponseError {
	const retry = 3
	f := NewResponseError(http.StatusServiceUnavailable, contract.ReasonStarting, message, "the page repeats the request")
	f.Body.RetryAfterSeconds = retry

	return f
}

var forbiddenMessage = regexp.MustCompile(`(?:(\S+) )?is forbidden: User "[^"]*" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// missingRight returns the right that the API server names in the error of a forbidden request; empty if it names none.
func missingRight(message string) string {
	found := forbiddenMessage.FindStringSubmatch(message)
	if found == nil {
		return ""
	}

	resource := found[3]
	if group := found[4]; group != "" {
		resource += "." + group
	}
	if name := strings.Trim(found[1], `"`); name != "" && name != resource {
		resource += "/" + name
	}

	return Right{Verb: found[2], Resource: resource, Namespace: found[5]}.String()
}

// Forbidden returns the failure of a request that the API server refuses, with the right that its message names.
func Forbidden(err error) *ResponseError {
	f := NewResponseError(http.StatusForbidden, contract.ReasonForbidden, err.Error(), "ask an administrator of the cluster for the right")
	f.Body.Right = missingRight(err.Error())
	return f
}

// FailureOf classifies an error: that of a backend, of the API server, or any other. Its text is for everybody who may log in, and has no name that is
// not public, such as the address of Prometheus.
func FailureOf(err error) *ResponseError {
	var failure *ResponseError
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.Is(err, context.DeadlineExceeded):
		return NewResponseError(http.StatusGatewayTimeout, contract.ReasonTimeout, "the request took too long: "+metrics.PublicMessage(err), "repeat it, or ask for a shorter time range")
	case apierrors.IsForbidden(err):
		return Forbidden(err)
	case apierrors.IsUnauthorized(err):
		return NewResponseError(http.StatusServiceUnavailable, contract.ReasonAPIServerUnavailable, "the API server does not accept the credentials: "+metrics.PublicMessage(err), "renew the login of kubectl")

	case apierrors.IsNotFound(err):
		return NewResponseError(http.StatusNotFound, contract.ReasonNotFound, err.Error(), "")
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return NewResponseError(http.StatusConflict, contract.ReasonConflict, err.Error(), "reload the page and repeat the action")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return NewResponseError(http.StatusUnprocessableEntity, contract.ReasonInvalid, err.Error(), "")
	case apierrors.IsTooManyRequests(err):
		return NewResponseError(http.StatusTooManyRequests, contract.ReasonBusy, err.Error(), "repeat the request")
	}

	return NewResponseError(http.StatusInternalServerError, contract.ReasonInternal, metrics.PublicMessage(err), "")
}
