// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"
)

const (
	// dialTimeout and replyTimeout bound one request of the client.
	dialTimeout  = 2 * time.Second
	replyTimeout = 10 * time.Second
)

// serveLatency responds to each byte with a byte after a fixed amount of CPU work. Additional latency is the
// interference of other processes.
func serveLatency(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("latency-server", flag.ContinueOnError)
	address := flags.String("listen", ":8080", "address to serve on")
	work := flags.Duration("work", time.Millisecond, "CPU time of a request on an idle machine")

	if err := flags.Parse(args); err != nil {
		return err
	}

	rounds := calibrate(*work)
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", *address)
	if err != nil {
		return err
	}
	defer listener.Close()

	if err := writeReport(out, map[string]any{"listening": listener.Addr().String(), "rounds": rounds}); err != nil {
		return err
	}

	// Closing the listener ends Accept below.
	done := terminated()
	go func() {
		<-done
		listener.Close()
	}()

	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}

		go answer(connection, rounds)
	}
}

// answer serves one connection until the client closes it.
func answer(connection net.Conn, rounds int) {
	defer func() { _ = connection.Close() }()

	var request [1]byte
	for {
		if _, err := io.ReadFull(connection, request[:]); err != nil {
			return
		}

		request[0] = spin(rounds)
		if _, err := connection.Write(request[:]); err != nil {
			return
		}
	}
}

// spin performs rounds of CPU work.
func spin(rounds int) byte {
	x := uint32(1)
	for range rounds {
		x = x*1664525 + 1013904223
	}

	return byte(x >> 24)
}

// calibrate returns the rounds of spin that take d of CPU time, the best of several measurements to exclude
// interference.
func calibrate(d time.Duration) int {
	const probe = 1 << 20
	best := time.Hour
	sum := byte(0)
	for range 5 {
		begin := time.Now()
		sum ^= spin(probe)
		best = min(best, time.Since(begin))
	}

	runtime.KeepAlive(sum) // prevents the compiler from removing the work
	return int(float64(probe) * d.Seconds() / max(best.Seconds(), 1e-9))
}

// latencyReport is the report of measureLatency. Times are in microseconds.
type latencyReport struct {
	Requests int   `json:"requests"`
	Errors   int   `json:"errors"`
	P50      int64 `json:"p50us"`
	P99      int64 `json:"p99us"`
	Max      int64 `json:"maxus"`
}

// measureLatency sends requests at a steady rate and reports the latencies of each period. A request that is due while
// another one is pending waits, and the wait counts.
func measureLatency(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("latency-client", flag.ContinueOnError)
	target := flags.String("target", "127.0.0.1:8080", "server's address")
	rate := flags.Float64("rate", 100, "requests per second")
	period := flags.Duration("period", time.Second, "time between reports")
	reports := flags.Int("reports", 0, "number of reports before exiting; 0 for no limit")
	connect := flags.Bool("connect", false, "measure the time to connect, to any TCP server, instead of a request")

	if err := flags.Parse(args); err != nil {
		return err
	}

	if !(*rate > 0 && *rate <= 1e5) || *period <= 0 {
		return fmt.Errorf("latency-client: rate %g in periods of %s: want a rate above 0 up to 100000", *rate, *period)
	}

	done := terminated()
	client := &latencyClient{target: *target, connectOnly: *connect}
	defer client.close()

	// Requests keep their schedule: the wait of a delayed one counts as latency.
	gap := time.Duration(float64(time.Second) / *rate)
	due := time.Now()
	end := time.Now().Add(*period)

	var latencies []int64
	report := latencyReport{}
	for sent := 0; *reports == 0 || sent < *reports; {
		select {
		case <-done:
			return nil
		case <-time.After(time.Until(due)):
		}

		if err := client.request(); err != nil {
			report.Errors++
		} else {
			latencies = append(latencies, time.Since(due).Microseconds())
		}

		report.Requests++
		due = due.Add(gap)

		if time.Now().Before(end) {
			continue
		}

		report.P50 = percentile(latencies, 0.5)
		report.P99 = percentile(latencies, 0.99)
		report.Max = percentile(latencies, 1)
		if err := writeReport(out, report); err != nil {
			return err
		}

		sent++
		latencies = latencies[:0]
		report = latencyReport{}
		end = time.Now().Add(*period)
	}

	return nil
}

// latencyClient keeps one connection, and opens another after a failure.
type latencyClient struct {
	target      string
	connectOnly bool
	connection  net.Conn
}

func (c *latencyClient) request() error {
	if c.connection == nil {
		dialer := net.Dialer{Timeout: dialTimeout}
		connection, err := dialer.DialContext(context.Background(), "tcp", c.target)
		if err != nil {
			return err
		}

		c.connection = connection
	}

	if c.connectOnly {
		c.close()
		return nil
	}

	if err := c.exchange(); err != nil {
		c.close()
		return err
	}

	return nil
}

func (c *latencyClient) exchange() error {
	if err := c.connection.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}

	message := []byte{0}
	if _, err := c.connection.Write(message); err != nil {
		return err
	}

	_, err := io.ReadFull(c.connection, message)
	return err
}

func (c *latencyClient) close() {
	if c.connection != nil {
		_ = c.connection.Close()
		c.connection = nil
	}
}
