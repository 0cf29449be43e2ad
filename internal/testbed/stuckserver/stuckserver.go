// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stuckserver is an API server that does not answer, for tests of what has to end all the same.
package stuckserver

import (
	"errors"
	"net/http"

	"k8s.io/client-go/rest"
)

// Server answers no request before it is released, whatever becomes of the request's context, as client-go between two attempts.
type Server struct {
	asked   chan struct{}
	release chan struct{}
}

// New returns a server. Release has to be called at the end.
func New() *Server {
	return &Server{asked: make(chan struct{}, 1), release: make(chan struct{})}
}

// Config returns the configuration of a client of the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "http://api.example", Transport: s}
}

// Asked returns a channel that receives after the first request.
func (s *Server) Asked() <-chan struct{} { return s.asked }

// Release lets all requests fail.
func (s *Server) Release() { close(s.release) }

// RoundTrip implements http.RoundTripper.
func (s *Server) RoundTrip(*http.Request) (*http.Response, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}

	<-s.release
	return nil, errors.New("connection refused")
}
