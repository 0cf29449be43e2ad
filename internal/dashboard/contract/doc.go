// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contract defines the requests and responses of the dashboard's API, the JSON between the web UI and its server.
//
// Rules that hold for every route:
//   - Routes begin with Prefix. GET routes read; POST routes need the header X-CSRF-Token with the token of the session.
//   - Times are seconds since 1970, in UTC, as integers; 0 or absent is unknown. CPU is in thousandths of a core (cpuMilli), memory in
//     bytes, money for a month of 730 hours in the currency of the answer. Shares are from 0 to 1.
//   - An unknown number is absent or null, and never 0.
//   - An error has its HTTP status (400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 504) and the body ErrorBody.
//   - Every route but those of the session accepts ?cluster=NAME; without it, the first cluster of the session answers.
//   - Answers that are large are compressed and have an ETag; a request with If-None-Match gets 304.
//
// PathLogin is served by crane dashboard serve alone. Session.Pages lists the pages that a server fills.
package contract

// Prefix is the beginning of all paths.
const Prefix = "/api/dashboard/v1"

// The routes, below Prefix.
const (
	// PathSession answers GET with a Session, with or without a login: it never answers 401.
	PathSession = "/session"
	// PathLogin accepts POST LoginRequest, sets the cookie of the session and answers with a Session. No CSRF token is needed.
	PathLogin = "/login"
	// PathLogout accepts POST without a body and ends the session.
	PathLogout = "/logout"
	// PathOverview answers GET with an Overview.
	PathOverview = "/overview"
	// PathWorklist answers GET with a Worklist: all rows that the user may read, for the clusters of ?cluster=, which may be repeated;
	// all clusters without it.
	PathWorklist = "/worklist"
	// PathWorkload answers GET ?namespace=&kind=&name= with a WorkloadDetail.
	PathWorkload = "/workload"
	// PathSeries answers GET ?namespace=&kind=&name=&from=&to=&points= with a WorkloadSeries. from and to are seconds since 1970,
	// points is the largest number of points of a series (200 to 4000, 1200 if absent).
	PathSeries = "/series"
	// PathWhatIf answers GET ?namespace=&kind=&name=&container= and the fields of WhatIfSettings (cpuPercentile, memoryPercentile, cpuMargin,
	// memoryMargin, target) with a WhatIf. Parameters that are absent have the values of the policy.
	PathWhatIf = "/whatif"
	// PathAutoscaling answers GET with an Autoscaling.
	PathAutoscaling = "/autoscaling"
	// PathForecast answers GET ?namespace=&name= (of an EffectiveHPA) with a Forecast.
	PathForecast = "/forecast"
	// PathNodes answers GET with a NodeList.
	PathNodes = "/nodes"
	// PathPlacement answers GET ?namespace=&pod= with a Placement: how the scheduler filtered and scored the nodes for a pod.
	PathPlacement = "/placement"
	// PathCost answers GET ?by=namespace|workload|node|pool|label&label=KEY&window=1h|1d|7d|14d with a Cost.
	PathCost = "/cost"
	// PathRules answers GET with a RuleList, and POST RuleRequest (dryRun true or false) with a RuleResult.
	PathRules = "/rules"
	// PathHealth answers GET with a Health.
	PathHealth = "/health"
	// PathExport accepts POST ExportRequest and answers with a file: text/plain or text/csv, or ErrorBody.
	PathExport = "/export"
	// PathAction accepts POST ActionRequest and answers with an ActionResult.
	PathAction = "/action"
)

// CSRFHeader is the header of a POST that has the token of the session.
const CSRFHeader = "X-CSRF-Token"

// SessionKeyHeader is the header of each request that has the key of a session on loopback, beside its cookie.
const SessionKeyHeader = "X-Crane-Session-Key"

// ErrorBody is the body of every error.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Error is the reason of a failed request.
type Error struct {
	// Reason is one of the constants below.
	Reason Reason `json:"reason"`
	// Message is one sentence in plain text.
	Message string `json:"message"`
	// Next is what the user can do, empty if there is nothing.
	Next string `json:"next,omitempty"`
	// Right is the right that is missing, such as "list recommendations.analysis.crane.io in namespace shop".
	Right string `json:"right,omitempty"`
	// RetryAfterSeconds is set where a repetition can succeed.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
}

// Reason is the kind of an error.
type Reason string

// The reasons.
const (
	ReasonUnauthenticated      Reason = "Unauthenticated"      // 401: no session, or it has expired; log in
	ReasonCSRF                 Reason = "CSRF"                 // 403: the token of the session is missing or wrong
	ReasonForbidden            Reason = "Forbidden"            // 403: Right is set
	ReasonNotFound             Reason = "NotFound"             // 404
	ReasonNotServed            Reason = "NotServed"            // 404: this server, mode or cluster does not have the data; Next has the reason
	ReasonConflict             Reason = "Conflict"             // 409: the object has changed
	ReasonInvalid              Reason = "Invalid"              // 400 or 422: a parameter or an object is not valid
	ReasonTooLarge             Reason = "TooLarge"             // 413
	ReasonBusy                 Reason = "Busy"                 // 429: a bound on concurrent or repeated requests is reached
	ReasonAPIServerUnavailable Reason = "APIServerUnavailable" // 503
	ReasonHistoryUnavailable   Reason = "HistoryUnavailable"   // 503: Prometheus is not configured or does not answer
	ReasonStarting             Reason = "Starting"             // 503: the cache is being filled
	ReasonTimeout              Reason = "Timeout"              // 504
	ReasonInternal             Reason = "Internal"             // 500
)

// Origin says where the numbers of an answer are from.
type Origin struct {
	// AsOf is the time of the data.
	AsOf int64 `json:"asOf"`
	// WindowSeconds is the length of the history behind them, 0 where there is none.
	WindowSeconds int64 `json:"windowSeconds,omitempty"`
	// Source names the sources, such as "Recommendations of the cluster prod" or "Prometheus http://prometheus:9090".
	Source string `json:"source"`
	// Stale is the reason why the data are older than they should be, such as "the API server does not answer since 12:03"; empty if they
	// are current.
	Stale string `json:"stale,omitempty"`
	// Notes are remarks on completeness, such as prices that are defaults.
	Notes []string `json:"notes,omitempty"`
	// PromQL are the queries behind the numbers, by name, to copy.
	PromQL map[string]string `json:"promql,omitempty"`
}
