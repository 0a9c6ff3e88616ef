// Package connect speaks the part of the Connect protocol that E2B's clients
// use: POST, JSON codec, no compression. Unary calls answer a JSON message or
// {"code","message"} with an HTTP status; streams answer HTTP 200 and carry
// their errors in the end-of-stream envelope.
//
// Source: connectrpc.com/docs/protocol, checked against the published SDKs in
// specs/e2b-wire.md section 7.2.
package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"tupper.dev/agent/internal/httpd"
)

// Code is a Connect error code as it appears on the wire.
type Code string

// The codes this agent answers with.
const (
	Canceled           Code = "canceled"
	Unknown            Code = "unknown"
	InvalidArgument    Code = "invalid_argument"
	DeadlineExceeded   Code = "deadline_exceeded"
	NotFound           Code = "not_found"
	AlreadyExists      Code = "already_exists"
	PermissionDenied   Code = "permission_denied"
	ResourceExhausted  Code = "resource_exhausted"
	FailedPrecondition Code = "failed_precondition"
	Unimplemented      Code = "unimplemented"
	Internal           Code = "internal"
	Unavailable        Code = "unavailable"
	Unauthenticated    Code = "unauthenticated"
)

// MaxMessage bounds one request message, so that a client cannot make the
// agent allocate without limit. Unit: bytes.
const MaxMessage = 64 << 20

// Detail is one entry of an error's "details". Value stays empty: the useful
// part is Debug, but clients insist on a string there.
type Detail struct {
	Type  string `json:"type"`
	Value string `json:"value"`
	Debug any    `json:"debug,omitempty"`
}

// Error is an error with a Connect code.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message,omitempty"`
	Details []Detail `json:"details,omitempty"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds a detail and returns the error.
func (e *Error) With(kind string, debug any) *Error {
	e.Details = append(e.Details, Detail{Type: kind, Debug: debug})
	return e
}

// AsError turns any error into one with a code.
func AsError(err error) *Error {
	var ce *Error
	switch {
	case errors.As(err, &ce):
		return ce
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(DeadlineExceeded, "the call's time limit has passed")
	case errors.Is(err, context.Canceled):
		return Errorf(Canceled, "the call was cancelled")
	}
	return Errorf(Internal, "%v", err)
}

// Status is the HTTP status of a unary answer with this code.
func (c Code) Status() int {
	switch c {
	case Canceled:
		return 499
	case InvalidArgument, FailedPrecondition:
		return httpd.StatusBadRequest
	case DeadlineExceeded:
		return httpd.StatusGatewayTimeout
	case NotFound:
		return httpd.StatusNotFound
	case AlreadyExists:
		return httpd.StatusConflict
	case PermissionDenied:
		return httpd.StatusForbidden
	case ResourceExhausted:
		return httpd.StatusTooManyRequests
	case Unimplemented:
		return httpd.StatusNotImplemented
	case Unavailable:
		return httpd.StatusServiceUnavailable
	case Unauthenticated:
		return httpd.StatusUnauthorized
	default:
		return httpd.StatusInternalServerError
	}
}

// Timeout reads Connect-Timeout-Ms; zero means no limit.
func Timeout(r *httpd.Request) time.Duration {
	ms, err := strconv.ParseInt(r.Header.Get("Connect-Timeout-Ms"), 10, 64)
	if err != nil || ms <= 0 || ms > int64(1<<62)/int64(time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// Keepalive reads Keepalive-Ping-Interval (seconds); 90 s when absent.
func Keepalive(r *httpd.Request) time.Duration {
	s, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || s <= 0 || s > 86400 {
		return 90 * time.Second
	}
	return time.Duration(s) * time.Second
}

// Deadline derives the context of a call from its Connect-Timeout-Ms.
func Deadline(r *httpd.Request) (context.Context, context.CancelFunc) {
	if limit := Timeout(r); limit > 0 {
		return context.WithTimeout(r.Context(), limit)
	}
	return context.WithCancel(r.Context())
}

// Unary wraps a handler of one message as an HTTP handler.
func Unary[Req any](handle func(ctx context.Context, r *httpd.Request, req *Req) (any, error)) httpd.HandlerFunc {
	return func(w httpd.ResponseWriter, r *httpd.Request) {
		ctx, cancel := Deadline(r)
		defer cancel()
		req := new(Req)
		body, err := io.ReadAll(io.LimitReader(r.Body, MaxMessage+1))
		if err == nil {
			err = decode(body, req)
		}
		if err != nil {
			WriteError(w, AsError(err))
			return
		}
		answer, err := handle(ctx, r, req)
		if err != nil {
			WriteError(w, AsError(err))
			return
		}
		WriteJSON(w, httpd.StatusOK, answer)
	}
}

// WriteError answers a unary call with an error.
func WriteError(w httpd.ResponseWriter, e *Error) { WriteJSON(w, e.Code.Status(), e) }

// WriteJSON answers with one JSON value and its length.
func WriteJSON(w httpd.ResponseWriter, status int, value any) {
	body := []byte("{}")
	if value != nil {
		if encoded, err := json.Marshal(value); err == nil {
			body = encoded
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func decode(body []byte, into any) error {
	if len(body) > MaxMessage {
		return Errorf(ResourceExhausted, "the message is larger than %d bytes", MaxMessage)
	}
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return Errorf(InvalidArgument, "cannot decode the message: %v", err)
	}
	return nil
}

// DecodeJSON reads a whole plain request body of at most 4 MiB; an empty one
// leaves into as it is.
func DecodeJSON(body io.Reader, into any) error {
	data, err := io.ReadAll(io.LimitReader(body, 4<<20))
	if err != nil || len(data) == 0 {
		return err
	}
	return json.Unmarshal(data, into)
}
