package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/config"
)

// Whole-Txn refusals: the server answered, and nothing of the Txn happened.
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
	rpctypes.ErrKeyNotFound, rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace, rpctypes.ErrUserEmpty,
	rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthMgmt,
}

// refused tells that the server answered and did nothing of the request.
func refused(err error) bool {
	native := rpctypes.Error(err)
	for _, r := range refusals {
		if is(native, r) {
			return true
		}
	}
	return false
}

// is compares what the client makes of the server's errors: values of a
// struct type, which errors.Is finds only by equality.
func is(err, target error) bool { return err != nil && errors.Is(rpctypes.Error(err), target) }

// wrap gives an error of the client the sentinel that the contract asks for.
// What is not known to be permanent is an unknown outcome.
func (b *backend) wrap(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrClosed) {
		return err
	}
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	native := rpctypes.Error(err)
	text := native.Error()
	if explained := config.ExplainTLS(native); explained != nil {
		if stale := b.source.Stale(); stale != nil {
			explained = fmt.Errorf("%w (in use is what was read before: %w)", explained, stale)
		}
		return fmt.Errorf("etcd: %s: %w", b.at(), explained)
	}
	switch {
	case is(native, rpctypes.ErrAuthFailed):
		return fmt.Errorf("etcd: %s: %w: %w: check username and password", b.at(), driver.ErrDenied, native)
	case is(native, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("etcd: %s: %w: %w: give user %q a role with readwrite on the keys that begin with %q",
			b.at(), driver.ErrDenied, native, b.opts.Username, b.opts.Prefix)
	case is(native, rpctypes.ErrUserEmpty), is(native, rpctypes.ErrInvalidAuthMgmt):
		return fmt.Errorf("etcd: %s: %w: %w: the server asks for a user: set username and password", b.at(), driver.ErrDenied, native)
	case is(native, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("etcd: %w: %w: raise the server's --max-request-bytes or publish a smaller value", driver.ErrInvalid, native)
	case strings.Contains(text, "authentication handshake failed: EOF"):
		return fmt.Errorf("etcd: %s: %w: %w: %w: what listens there ended the TLS handshake: it may speak plain text, then use http://",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case strings.Contains(text, "looked like an HTTP/1.1 header"):
		return fmt.Errorf("etcd: %s: %w: %w", b.at(), config.Stranger(config.HTTP, config.Etcd), native)
	case strings.Contains(text, "error reading server preface"):
		return fmt.Errorf("etcd: %s: %w: %w: %w: what listens there may want TLS, or is no etcd",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case errors.Is(err, errEpoch), neverSent(native, text):
		return fmt.Errorf("etcd: %s: %w: %w: %w", b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	}
	return fmt.Errorf("etcd: %s: %w: %w", b.at(), driver.ErrUnavailable, native)
}

// neverSent tells that no connection stood, or that the server refused the
// request before it did anything.
func neverSent(err error, text string) bool {
	for _, early := range []string{
		"Error while dialing", "authentication handshake failed", "waiting for connections to become ready", "latest balancer error",
	} {
		if strings.Contains(text, early) {
			return true
		}
	}
	return refused(err)
}

// interrupted is the error of a caller whose ctx ended before the answer.
func (b *backend) interrupted(ctx context.Context, sent bool) error {
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if !sent {
		return fmt.Errorf("etcd: %s: %w: %w: %w", b.at(), driver.ErrUnavailable, driver.ErrNotSent, ctx.Err())
	}
	return fmt.Errorf("etcd: %s: %w: %w", b.at(), driver.ErrUnavailable, ctx.Err())
}

// at names the servers in errors.
func (b *backend) at() string { return strings.Join(b.opts.Address, ",") }

// untouched is wrap for a request that can have changed no lock, whatever
// became of it.
func (b *backend) untouched(err error) error {
	err = b.wrap(err)
	if errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrNotSent) {
		return fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	return err
}

// harmless tells that a request certainly changed nothing.
func (b *backend) harmless(err error) bool {
	return refused(err) || errors.Is(err, errEpoch) || errors.Is(b.wrap(err), driver.ErrNotSent)
}
