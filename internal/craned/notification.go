// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/component/wallclock"
)

// Notifications are the endpoints to which events are sent. Without a file nothing is sent.
type Notifications struct {
	// WebhookURLFile and SlackURLFile are files with the URL of an endpoint.
	WebhookURLFile, SlackURLFile string
}

func (n *Notifications) addFlags(fs *pflag.FlagSet) {
	const content = "File with the https URL of %s. It gets rollbacks, stops and the opening of the circuit breaker of adoption, and a report of savings " +
		"each week. Empty: none."
	fs.StringVar(&n.WebhookURLFile, "notification-webhook-url-file", n.WebhookURLFile, fmt.Sprintf(content, "a webhook, which gets events as JSON"))
	fs.StringVar(&n.SlackURLFile, "notification-slack-url-file", n.SlackURLFile, fmt.Sprintf(content, "an incoming webhook of Slack, or of a compatible server"))
}

// addNotifications adds a sender for each endpoint.
func addNotifications(_ context.Context, p *dependencies) error {
	counts := notification.NewCounter()
	var senders []*notification.Sender
	for _, endpoint := range []struct {
		flag, file string
		format     notification.Format
	}{
		{"notification-webhook-url-file", p.Notifications.WebhookURLFile, notification.FormatWebhook},
		{"notification-slack-url-file", p.Notifications.SlackURLFile, notification.FormatSlack},
	} {
		if endpoint.file == "" {
			continue
		}
		if err := notification.CheckURLFile(endpoint.file); err != nil {
			return fmt.Errorf("--%s: %w", endpoint.flag, err)
		}
		sender := notification.NewSender(endpoint.format, endpoint.file, wallclock.New(), counts)
		if err := p.mgr.Add(sender); err != nil {
			return fmt.Errorf("adding the sender of notifications: %w", err)
		}
		senders = append(senders, sender)
	}
	if len(senders) == 0 {
		return nil
	}
	if err := ctrlmetrics.Registry.Register(counts); err != nil {
		return fmt.Errorf("registering the metric of notifications: %w", err)
	}
	p.notify = func(e notification.Event) {
		for _, sender := range senders {
			sender.Enqueue(e)
		}
	}
	return nil
}
