// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"crane.io/crane/internal/metrics"
)

// envelope is the format of every JSON response.
type envelope struct {
	// Error is empty on success.
	Error string `json:"error"`
	Data  any    `json:"data"`
}

// writeData writes data with status 200, or returns an error if they are too large.
func writeData(w http.ResponseWriter, data any) error {
	if list, ok := newStreamedList(data); ok {
		return list.write(w)
	}

	body, err := encode(envelope{Data: data})
	if err != nil {
		return err
	}

	writeBody(w, http.StatusOK, body)
	return nil
}

// writeError writes the error of a request that is not processed. Errors of processed requests have status 200, as gocrane's do.
func writeError(w http.ResponseWriter, status int, message string) {
	writeEnvelope(w, status, envelope{Error: message})
}

func writeEnvelope(w http.ResponseWriter, status int, e envelope) {
	body, err := encode(e)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	writeBody(w, status, body)
}

// publicMessage returns the text of an error for clients. If it is without details that are not public, the log has them.
func publicMessage(ctx context.Context, err error) string {
	message := metrics.PublicMessage(err)
	if message != err.Error() {
		log.FromContext(ctx).Error(err, "reading from a data source")
	}

	return message
}

func writeBody(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // The client has disconnected.
}

// errTooLong reports a response of more than maxAnswer bytes.
var errTooLong = errors.New("the answer is too long: ask for less, such as one namespace or a shorter time")

// limitedBuffer is a buffer with a maximum size.
type limitedBuffer struct {
	bytes.Buffer
	remaining int
}

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.remaining -= len(p)
	if b.remaining < 0 {
		return 0, errTooLong
	}

	return b.Buffer.Write(p)
}

func encode(e envelope) ([]byte, error) {
	out := &limitedBuffer{remaining: maxAnswer}
	if err := json.NewEncoder(out).Encode(e); err != nil {
		return nil, fmt.Errorf("writing the answer: %w", err)
	}

	return out.Bytes(), nil
}
