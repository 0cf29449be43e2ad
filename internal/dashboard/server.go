// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/boundedserver"
	"crane.io/crane/internal/component/recovery"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/web"
)

// Bounds of requests. They apply before the work for a request begins.
const (
	maxBody       = 4 << 20
	maxHeader     = 32 << 10
	maxConcurrent = 32
	// maxConnections bounds the connections. A browser opens up to six.
	maxConnections = 256
	// requestTimeout bounds one request; the what-if and the history of one workload take seconds.
	requestTimeout = 90 * time.Second
	// bodyTimeout bounds the arrival of the body of a request.
	bodyTimeout = 10 * time.Second
	// healthPath answers the probes of the kubelet.
	healthPath = "/healthz"
)

// Config configures a server: for a single user on loopback, or for the persons of a cluster over TLS.
type Config struct {
	Mode     contract.Mode
	Backends []Backend
	// Static serves the page and its files.
	Static http.Handler
	// User is the name of the single user, for the page.
	User string
	// Reviews identify persons by their tokens; nil for a single user. The backends must be guarded by the same reviews.
	Reviews *Reviews
	Audit   *slog.Logger
	Clock   clock.Clock
}

// Server is the dashboard.
type Server struct {
	config   Config
	backends backends
	audit    auditLog
	host     string
	sessions *sessions
	places   *places
	mux      *http.ServeMux
	// handler is the mux, whose panics are answered.
	handler http.Handler

	// worklists are the last worklists as they are sent, and what each was encoded from.
	mu        sync.Mutex
	worklists []encodedWorklist
}

// maxEncoded bounds the encoded worklists: persons with different rights have different ones.
const maxEncoded = 4

type encodedWorklist struct {
	parts []*contract.Worklist
	body  encoded
}

// New returns a server for the address of a listener. For a single user, requests with another Host header are rejected, so that a page of
// another origin whose name resolves to this machine reads nothing. In a cluster the names are not known; a page of another name has no
// cookie there.
func New(config Config, listen net.Addr) *Server {
	_, port, _ := net.SplitHostPort(listen.String())
	s := &Server{
		config:   config,
		backends: config.Backends,
		audit:    auditLog{config.Audit, config.User},
		host:     listen.String(),
		places:   newPlaces(),
		mux:      http.NewServeMux(),
		sessions: &sessions{
			clock:  config.Clock,
			key:    []byte(randomToken()),
			opened: make(chan struct{}),
			byHash: map[[32]byte]session{},
		},
	}

	// On one machine, a token that is used once opens the session; in a cluster, persons log in over TLS.
	if config.Reviews == nil {
		s.sessions.cookie = "crane-dashboard-" + port
		s.sessions.oneTime = randomToken()
		s.sessions.keyed = true
	} else {
		s.sessions.cookie = "__Host-crane-dashboard"
		s.sessions.secure = true
	}

	s.routes()
	s.handler = recovery.Handler(s.mux, func(w http.ResponseWriter, _ *http.Request, err error) { sendFailure(w, err) })
	return s
}

// Link returns the address that opens the dashboard once.
func (s *Server) Link() string { return "http://" + s.host + "/?token=" + s.sessions.oneTime }

// Opened returns a channel that is closed once Link has opened a session.
func (s *Server) Opened() <-chan struct{} { return s.sessions.opened }

// Listen returns a listener with a bounded number of connections, most of whose clients have no session yet. config is the configuration of
// TLS; nil for none.
func Listen(ctx context.Context, address string, config *tls.Config) (net.Listener, error) {
	return boundedserver.Listen(ctx, address, maxConnections, config)
}

// Serve serves until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := boundedserver.New(s, requestTimeout)
	server.Handler = s // Connections are kept while their requests have a place.
	server.MaxHeaderBytes = maxHeader
	server.WriteTimeout = 2 * requestTimeout
	server.BaseContext = func(net.Listener) context.Context { return ctx }

	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()

	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the dashboard: %w", err)
	}

	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if s.config.Reviews != nil {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		if r.URL.Path == healthPath {
			_, _ = io.WriteString(w, "ok") // The probe has disconnected.
			return
		}
	} else if !s.ownHost(r.Host) {
		sendFailure(w, NewResponseError(http.StatusForbidden, contract.ReasonForbidden, "the address "+r.Host+" is not the one of this dashboard", "open the address that crane dashboard prints"))
		return
	}

	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		sendFailure(w, NewResponseError(http.StatusForbidden, contract.ReasonCSRF, "the request is from another origin", "reload the page"))
		return
	}

	if err := s.readBody(w, r); err != nil {
		sendFailure(w, err)
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()

	if !isPage(r) {
		placed, leave, ok := s.places.enter(ctx)
		if !ok {
			sendFailure(w, errBusy())
			return
		}
		defer leave()

		ctx = placed
	}

	s.handler.ServeHTTP(w, r.WithContext(ctx))
}

// ownHost reports whether a request was sent to the address of the listener, by number or as localhost.
func (s *Server) ownHost(host string) bool {
	_, port, err := net.SplitHostPort(s.host)
	return host == s.host || err == nil && host == net.JoinHostPort("localhost", port)
}

func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", web.ContentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// authenticate returns the session of a request, and its context with the person.
func (s *Server) authenticate(r *http.Request) (session, *http.Request, error) {
	login, ok := s.sessions.of(r)
	if s.config.Reviews == nil {
		if !ok {
			return login, r, errNoSession("open the address that crane dashboard prints; start it again for a new one")
		}

		return login, r, nil
	}

	// A proxy sends the token with each request; otherwise it is that of the login.
	token, forwarded := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !forwarded {
		token = login.person.Token
	}

	if token == "" {
		return login, r, errNoSession("")
	}

	person, err := s.config.Reviews.Identify(r.Context(), token)
	if err != nil {
		return login, r, s.endIfUnauthorized(r, err)
	}

	login.person = person

	if forwarded {
		login.csrf = s.sessions.csrfOf(person.Name)
		login.expires = time.Time{}
	}

	return login, r.WithContext(WithPerson(r.Context(), person)), nil
}

// endIfUnauthorized ends the session of a person whose token the API server does not accept any more.
func (s *Server) endIfUnauthorized(r *http.Request, err error) error {
	if s.config.Reviews == nil || !apierrors.IsUnauthorized(err) {
		return err
	}

	if p, ok := PersonOf(r.Context()); ok && !s.config.Reviews.Refuse(p.Token) {
		return errRefusedForNow()
	}

	s.sessions.end(r)
	return errNoSession("")
}

// read registers a GET route that requires a session.
func (s *Server) read(path string, answer func(r *http.Request) (any, error)) {
	s.mux.HandleFunc("GET "+contract.Prefix+path, func(w http.ResponseWriter, r *http.Request) {
		login, r, err := s.authenticate(r)
		if err != nil {
			sendFailure(w, err)
			return
		}

		end, err := s.places.startWork(accountOf(login.person))
		if err != nil {
			sendFailure(w, err)
			return
		}
		defer end()

		value, err := answer(r)
		if err != nil {
			sendFailure(w, s.endIfUnauthorized(r, err))
			return
		}

		w.Header().Set("Cache-Control", "private, no-cache")
		body, ok := value.(encoded)
		if !ok {
			if body, err = encode(value); err != nil {
				sendFailure(w, err)
				return
			}
		}

		body.send(w, r)
	})
}

// write registers a POST route that requires a session and its CSRF token.
func (s *Server) write(path string, answer func(w http.ResponseWriter, r *http.Request) error) {
	s.mux.HandleFunc("POST "+contract.Prefix+path, func(w http.ResponseWriter, r *http.Request) {
		login, r, err := s.authenticate(r)
		if err == nil {
			err = checkCSRF(r, login)
		}
		if err == nil {
			err = s.places.work(accountOf(login.person), func() error { return answer(w, r) })
		}
		if err != nil {
			sendFailure(w, s.endIfUnauthorized(r, err))
		}
	})
}

// checkCSRF returns an error if a request lacks the CSRF token of its session.
func checkCSRF(r *http.Request, login session) error {
	if !sameToken(r.Header.Get(contract.CSRFHeader), login.csrf) {
		return NewResponseError(http.StatusForbidden, contract.ReasonCSRF, "the request lacks the token of the session", "reload the page")
	}

	return nil
}

// login starts a session for a token of the cluster.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if s.config.Reviews == nil {
		sendFailure(w, NotServed("this dashboard has no login by token", "open the address that crane dashboard prints"))
		return
	}

	var request contract.LoginRequest
	if err := decode(r, &request); err != nil {
		sendFailure(w, err)
		return
	}

	person, err := s.config.Reviews.Identify(r.Context(), request.Token)
	if err != nil {
		sendFailure(w, s.endIfUnauthorized(r, err))
		return
	}

	end, err := s.places.startWork(accountOf(person))
	if err != nil {
		sendFailure(w, err)
		return
	}
	defer end()

	cookie, login, err := s.sessions.start(person)
	if err != nil {
		sendFailure(w, err)
		return
	}

	// The log names who opened a session, never the token.
	s.config.Audit.Info("login", "user", person.Name)
	s.sessions.setCookie(w, cookie)

	if err := sendValue(w, r, s.describe(r.WithContext(WithPerson(r.Context(), person)), login, true)); err != nil {
		sendFailure(w, err)
	}
}

func errNoSession(next string) error {
	return NewResponseError(http.StatusUnauthorized, contract.ReasonUnauthenticated, "there is no session, or it has expired", cmp.Or(next, "log in again"))
}

// decode reads the JSON body of a request strictly.
func decode(r *http.Request, body any) error {
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" {
		return NewResponseError(http.StatusBadRequest, contract.ReasonInvalid, "the body must be application/json", "")
	}

	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()

	if err := d.Decode(body); err != nil {
		return bodyFailure(err)
	}

	return nil
}

// bodyFailure returns the failure of a body that cannot be read.
func bodyFailure(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return NewResponseError(http.StatusRequestEntityTooLarge, contract.ReasonTooLarge, fmt.Sprintf("the body exceeds %d bytes", tooLarge.Limit), "select fewer rows")
	}

	return NewResponseError(http.StatusBadRequest, contract.ReasonInvalid, "the body is not valid: "+err.Error(), "")
}

// describe returns the session of a request.
func (s *Server) describe(r *http.Request, login session, ok bool) contract.Session {
	out := contract.Session{
		Authenticated: ok,
		Mode:          s.config.Mode,
		LoginMethods:  s.loginMethods(),
		Clusters:      []contract.Cluster{},
		Version:       version.String(),
		Pages:         []string{"overview", "worklist", "workload", "autoscaling", "nodes", "cost", "rules", "health"},
	}

	if s.config.Mode == contract.ModeFiles {
		out.Pages = out.Pages[:3]
	}

	// Without a session, not even the names of clusters are sent.
	if !ok {
		return out
	}

	out.User = cmp.Or(login.person.Name, s.config.User)
	out.CSRFToken = login.csrf
	out.Expires = Unix(login.expires)
	for _, b := range s.backends {
		out.Clusters = append(out.Clusters, b.Cluster(r.Context()))
	}

	return out
}

func (s *Server) loginMethods() []string {
	if s.config.Reviews != nil {
		return []string{"token"}
	}

	return []string{"link"}
}
