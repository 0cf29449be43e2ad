// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notification sends events to people: as JSON to a webhook, or as text to an endpoint that accepts Slack's incoming webhooks. An
// endpoint's URL is a secret in a file of the administrator. What is sent is bounded: events wait in a queue of fixed size, one request
// carries all that wait, and requests are retried a few times and at least an interval apart.
package notification

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"crane.io/crane/internal/component/termtext"
)

const (
	// maxMessage bounds the text of one event, in bytes.
	maxMessage = 2000
	// schema is the version of the JSON of a webhook.
	schema = "crane.io/notification/v1"
)

// The reasons of events; those of adoption are the reasons of its Kubernetes events.
const (
	ReasonRolledBack   = "AdoptionRolledBack"
	ReasonStopped      = "AdoptionStopped"
	ReasonBreakerOpen  = "AdoptionBreakerOpen"
	ReasonWeeklyReport = "WeeklyReport"
)

// Event is one event. Object is the object as "Deployment shop/web", empty for the cluster; Namespace is that of the object or of its circuit
// breaker, empty for the cluster.
type Event struct {
	Namespace string `json:"-"`

	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object,omitempty"`
	Message string    `json:"message"`
}

// Format is the format of the body of a request.
type Format string

// The formats.
const (
	FormatWebhook Format = "webhook"
	FormatSlack   Format = "slack"
)

// encode returns the body of a request with events. dropped is the number of events that did not fit in the queue.
func (f Format) encode(all []Event, dropped int) ([]byte, error) {
	for i := range all {
		all[i].Message = truncate(all[i].Message)
	}

	if f == FormatSlack {
		return json.Marshal(map[string]string{"text": slackText(all, dropped)})
	}

	return json.Marshal(struct {
		Schema  string  `json:"schema"`
		Events  []Event `json:"events"`
		Dropped int     `json:"dropped,omitempty"`
	}{schema, all, dropped})
}

// slackText formats events in Slack's markup. The message of an object may quote what tenants write, such as the message of an event of Kubernetes. It
// is one line of code, in which nothing is a link, an image, a mention or another event.
func slackText(all []Event, dropped int) string {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "*%s*", escape(e.Reason))
		message := e.Message
		if e.Object != "" {
			b.WriteString(" " + escape(termtext.Line(e.Object)))
			message = "`" + strings.ReplaceAll(termtext.Line(message), "`", "'") + "`"
		}

		b.WriteString("\n" + escape(message) + "\n")
	}

	if dropped > 0 {
		fmt.Fprintf(&b, "%d further events were dropped: kubectl get events -A\n", dropped)
	}

	return b.String()
}

func truncate(text string) string {
	if len(text) <= maxMessage {
		return text
	}

	end := maxMessage
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end] + "..."
}
