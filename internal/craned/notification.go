// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/component/notification"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/pkg/savings"
)

// Notifications are the endpoints to which events are sent. Without a file nothing is sent.
type Notifications struct {
	// WebhookURLFile and SlackURLFile are files with the URL of an endpoint.
	WebhookURLFile, SlackURLFile string
	// WeeklyReport is the day, the time and optionally the time zone of the report.
	WeeklyReport string
}

func newNotifications() Notifications { return Notifications{WeeklyReport: "Monday 00:00"} }

func (n *Notifications) addFlags(fs *pflag.FlagSet) {
	const content = "File with the https URL of %s. It gets rollbacks, stops and the opening of the circuit breaker of adoption, and a report of savings " +
		"each week. Empty: none."
	fs.StringVar(&n.WebhookURLFile, "notification-webhook-url-file", n.WebhookURLFile, fmt.Sprintf(content, "a webhook, which gets events as JSON"))
	fs.StringVar(&n.SlackURLFile, "notification-slack-url-file", n.SlackURLFile, fmt.Sprintf(content, "an incoming webhook of Slack, or of a compatible server"))
	fs.StringVar(&n.WeeklyReport, "weekly-report", n.WeeklyReport, "Day, full hour and time zone of the weekly report, such as Friday 09:00 Asia/Shanghai. Without a zone: UTC.")
}

func (n *Notifications) validate() field.ErrorList {
	if _, err := n.schedule(); err != nil {
		return field.ErrorList{field.Invalid(flag("weekly-report"), n.WeeklyReport, err.Error())}
	}

	return nil
}

// schedule parses the time of the weekly report.
func (n *Notifications) schedule() (savings.Schedule, error) {
	fields := strings.Fields(n.WeeklyReport)
	if len(fields) == 2 {
		fields = append(fields, "UTC")
	}

	if len(fields) != 3 {
		return savings.Schedule{}, errors.New("must be a day, a full hour and a time zone, such as Friday 09:00 Asia/Shanghai")
	}

	days := []time.Weekday{time.Sunday, time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday, time.Saturday}
	day := slices.IndexFunc(days, func(d time.Weekday) bool { return strings.EqualFold(d.String(), fields[0]) })
	if day < 0 {
		return savings.Schedule{}, fmt.Errorf("%q is not a day of the week, such as Monday", fields[0])
	}

	hour, err := time.Parse("15:04", fields[1])
	if err != nil || hour.Minute() != 0 {
		return savings.Schedule{}, fmt.Errorf("%q is not a full hour, such as 09:00", fields[1])
	}

	zone, err := time.LoadLocation(fields[2])
	return savings.Schedule{Day: days[day], Hour: hour.Hour(), Zone: zone}, err
}

// addNotifications adds a sender for each endpoint.
func addNotifications(_ context.Context, d *dependencies) error {
	counts := notification.NewCounter()
	var senders []*notification.Sender
	for _, endpoint := range []struct {
		flag, file string
		format     notification.Format
	}{
		{"notification-webhook-url-file", d.Notifications.WebhookURLFile, notification.FormatWebhook},
		{"notification-slack-url-file", d.Notifications.SlackURLFile, notification.FormatSlack},
	} {
		if endpoint.file == "" {
			continue
		}

		if err := notification.CheckURLFile(endpoint.file); err != nil {
			return fmt.Errorf("--%s: %w", endpoint.flag, err)
		}

		sender := notification.NewSender(endpoint.format, endpoint.file, wallclock.New(), counts)
		if err := d.mgr.Add(sender); err != nil {
			return fmt.Errorf("adding the sender of notifications: %w", err)
		}

		senders = append(senders, sender)
	}

	if len(senders) == 0 {
		return nil
	}

	if err := metricsRegistry().Register(counts); err != nil {
		return fmt.Errorf("registering the metric of notifications: %w", err)
	}

	// One event goes to all endpoints; Enqueue does not wait for them.
	d.notify = func(e notification.Event) {
		for _, sender := range senders {
			sender.Enqueue(e)
		}
	}

	return nil
}
