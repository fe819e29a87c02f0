package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
)

// ErrDataLost means that the store has lost its data since the request was
// prepared, and that the request had no effect.
var ErrDataLost = errors.New("etcd: the store has lost its data")

// ErrWatchRefused means that a server does not open a watch. Old servers also refuse a watch when a
// login has expired, as if rights were missing.
var ErrWatchRefused = errors.New("etcd: watch refused")

// refusals are answers by which the server refuses a whole Txn and does no part of it. ErrNoSpace
// is no refusal, because the server may have done the Txn; see [OutOfSpace].
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
	rpctypes.ErrKeyNotFound, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty,
	rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthMgmt,
}

// declines are errors of a member that cannot begin a request, while another member may be able to.
var declines = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrCorrupt, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner),
}

// Refused reports whether the server refused the request and did no part of it.
func Refused(err error) bool { return isOneOf(err, refusals) }

// OutOfSpace reports whether the server answered that its database is full. The server may have
// refused the request or executed it (see the quota's applier in etcdserver/apply/quota.go). So the
// outcome is unknown but final: no part of the request is still under way.
func OutOfSpace(err error) bool { return Is(err, rpctypes.ErrNoSpace) }

// isAnswer reports whether err, which may be nil, shows that the store answers.
func isAnswer(err error) bool { return err == nil || Refused(err) || OutOfSpace(err) }

func declined(err error) bool {
	return isOneOf(err, declines) || err != nil && strings.Contains(err.Error(), "raft proposal dropped")
}

// Failing reports whether err is a reason to send later requests to another member.
func Failing(err error) bool {
	if errors.Is(err, errSick) || errors.Is(err, errSilent) || errors.Is(err, errAstray) || errors.Is(err, errElected) || declined(err) || errors.Is(err, errStranger) {
		return true
	}
	var native rpctypes.EtcdError
	if !errors.As(rpctypes.Error(err), &native) {
		return false
	}
	code := native.Code().String()
	return code == "Unavailable" || code == "DeadlineExceeded"
}

func isOneOf(err error, targets []error) bool {
	native := rpctypes.Error(err)
	return slices.ContainsFunc(targets, func(t error) bool { return Is(native, t) })
}

// Is reports whether err is target. Unlike errors.Is, it also recognizes a server's
// error that the client library has turned into a struct. err may be an error of
// this package that wraps such a struct.
func Is(err, target error) bool {
	return err != nil && (errors.Is(err, target) || errors.Is(rpctypes.Error(err), target))
}

// Wrap adds to err, an error of the client library, the sentinel error that package driver
// requires. If Wrap does not know err, it adds driver.ErrUnavailable, because the outcome of the
// request is unknown.
func (c *Cluster) Wrap(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrClosed) {
		return err
	}
	if c.background.Err() != nil {
		return driver.ErrClosed
	}
	native := rpctypes.Error(err)
	text := native.Error()
	if explained := config.ExplainTLS(native); explained != nil {
		if stale := c.opts.Source.Stale(); stale != nil {
			explained = fmt.Errorf("%w (the last good text stays in use: %w)", explained, stale)
		}
		return fmt.Errorf("etcd: %s: %w", c.identity.Addr, explained)
	}
	switch {
	case Is(native, rpctypes.ErrAuthFailed):
		return c.denied(native, "check username and password")
	case Is(native, rpctypes.ErrPermissionDenied):
		return c.denied(native, fmt.Sprintf("give user %q a role with readwrite on the keys that begin with %q", c.opts.Username, c.opts.Prefix))
	case Is(native, rpctypes.ErrUserEmpty), Is(native, rpctypes.ErrInvalidAuthMgmt):
		return c.denied(native, "the server asks for a user: set username and password")
	case OutOfSpace(native):
		return fmt.Errorf("etcd: %s: %w: %w: compact and defragment it, and disarm its alarm (etcdctl alarm disarm)", c.identity.Addr, driver.ErrUnavailable, native)
	case Is(native, rpctypes.ErrTooManyOps):
		return c.denied(native, "raise the server's --max-txn-ops to 8 or more")
	case Is(native, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("etcd: %w: %w: raise the server's --max-request-bytes or publish a smaller value", driver.ErrInvalid, native)
	case unanswered(text), c.ended(text) && neverSent(native, text):
		return fmt.Errorf("etcd: %s: %w", c.identity.Addr, config.Unanswered("etcd member", native))
	case c.ended(text):
		return fmt.Errorf("etcd: %s: %w: no etcd member answers there: %s: %w", c.identity.Addr, driver.ErrUnavailable, config.WhatToCheck, native)
	case errors.Is(err, ErrDataLost), neverSent(native, text):
		return fmt.Errorf("etcd: %s: %w: %w: %w", c.identity.Addr, driver.ErrUnavailable, driver.ErrNotSent, native)
	}
	return fmt.Errorf("etcd: %s: %w: %w", c.identity.Addr, driver.ErrUnavailable, native)
}

// ended reports whether text says that the connection was reset by a server that never answered.
// The server may have refused the client's certificate. With TLS 1.3 it does so only after the
// client has begun to send, and its alert may be lost.
func (c *Cluster) ended(text string) bool {
	return c.identity.Current() == "" && (strings.Contains(text, "connection reset by peer") || strings.Contains(text, "broken pipe"))
}

// unanswered reports whether text, an error of grpc, says that a connection was made but that no
// etcd server answered over it.
func unanswered(text string) bool {
	return slices.ContainsFunc([]string{
		"authentication handshake failed", "failed to write client preface", "error reading server preface", "looked like an HTTP/1.1 header",
		"http2: frame too large", "waiting for connections to become ready",
	}, func(said string) bool { return strings.Contains(text, said) })
}

func (c *Cluster) denied(native error, advice string) error {
	return fmt.Errorf("etcd: %s: %w: %w: %w: %s", c.identity.Addr, driver.ErrDenied, driver.ErrNotSent, native, advice)
}

// neverSent reports whether there was no connection, or the server refused the request before doing
// anything.
func neverSent(err error, text string) bool {
	return strings.Contains(text, "Error while dialing") || strings.Contains(text, "latest balancer error") || Refused(err) || declined(err)
}

// Untouched is Wrap for a request that changed no lock. It adds ErrNotSent to ErrUnavailable.
func (c *Cluster) Untouched(err error) error {
	err = c.Wrap(err)
	if errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrNotSent) {
		return fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	return err
}

// Harmless reports whether a request that failed with err certainly changed nothing.
func (c *Cluster) Harmless(err error) bool {
	return Refused(err) || errors.Is(err, ErrDataLost) || errors.Is(c.Wrap(err), driver.ErrNotSent)
}
