package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// What one member says that cannot begin with a request, and another one may.
var declines = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrCorrupt, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner),
}

// refused reports whether the server answered and did nothing of the request.
func refused(err error) bool { return isOneOf(err, refusals) }

// declined reports whether this member did not begin with the request.
func declined(err error) bool {
	return isOneOf(err, declines) || err != nil && strings.Contains(err.Error(), "raft proposal dropped")
}

// failing reports whether err is a reason to ask another member from now on.
func failing(err error) bool {
	if errors.Is(err, errSick) || errors.Is(err, errElected) || declined(err) {
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
	return slices.ContainsFunc(targets, func(t error) bool { return is(native, t) })
}

// is compares what the client makes of the server's errors: values of a
// struct type, which errors.Is finds only by equality. err may be one of ours
// that wraps such a value.
func is(err, target error) bool {
	return err != nil && (errors.Is(err, target) || errors.Is(rpctypes.Error(err), target))
}

// wrap gives an error of the client the sentinel that the contract asks for.
// What is not known to be permanent is an unknown outcome.
func (b *Backend) wrap(err error) error {
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
		return b.denied(native, "check username and password")
	case is(native, rpctypes.ErrPermissionDenied):
		return b.denied(native, fmt.Sprintf("give user %q a role with readwrite on the keys that begin with %q", b.opts.Username, b.opts.Prefix))
	case is(native, rpctypes.ErrUserEmpty), is(native, rpctypes.ErrInvalidAuthMgmt):
		return b.denied(native, "the server asks for a user: set username and password")
	case is(native, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("etcd: %w: %w: raise the server's --max-request-bytes or publish a smaller value", driver.ErrInvalid, native)
	case strings.Contains(text, "authentication handshake failed: EOF"):
		return fmt.Errorf("etcd: %s: %w: %w: %w: what listens there ended the TLS handshake: it may speak plain text, then use http://",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case strings.Contains(text, "looked like an HTTP/1.1 header"):
		return fmt.Errorf("etcd: %s: %w: %w", b.at(), config.Stranger(config.HTTP, config.Etcd), native)
	case strings.Contains(text, "http2: frame too large"), strings.Contains(text, "no application protocol"), strings.Contains(text, "ALPN"):
		return fmt.Errorf("etcd: %s: %w: %w: what listens there does not speak HTTP/2, and is no etcd: check the address: %w",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case strings.Contains(text, "failed to write client preface"):
		return fmt.Errorf("etcd: %s: %w: %w: what listens there ended the connection: it may refuse the client's certificate (tls_cert_file), or want one: %w",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case strings.Contains(text, "error reading server preface"):
		return fmt.Errorf("etcd: %s: %w: %w: %w: what listens there may want TLS, or is no etcd",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case strings.Contains(text, "waiting for connections to become ready"):
		return fmt.Errorf("etcd: %s: %w: %w: no connection came about in time: what listens there may be no etcd, or speak TLS where plain text is expected, or not: %w",
			b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	case errors.Is(err, errEpoch), neverSent(native, text):
		return fmt.Errorf("etcd: %s: %w: %w: %w", b.at(), driver.ErrUnavailable, driver.ErrNotSent, native)
	}
	return fmt.Errorf("etcd: %s: %w: %w", b.at(), driver.ErrUnavailable, native)
}

// denied is the error of a request that the server has refused to this client.
func (b *Backend) denied(native error, advice string) error {
	return fmt.Errorf("etcd: %s: %w: %w: %w: %s", b.at(), driver.ErrDenied, driver.ErrNotSent, native, advice)
}

// neverSent reports whether no connection stood, or the server refused the
// request before it did anything.
func neverSent(err error, text string) bool {
	for _, early := range []string{
		"Error while dialing", "authentication handshake failed", "latest balancer error",
		"error reading server preface", "failed to write client preface",
	} {
		if strings.Contains(text, early) {
			return true
		}
	}
	return refused(err) || declined(err)
}

// interrupted is the error of a caller whose ctx ended before the answer.
func (b *Backend) interrupted(ctx context.Context, sent bool) error {
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if !sent {
		return fmt.Errorf("etcd: %s: %w: %w: %w", b.at(), driver.ErrUnavailable, driver.ErrNotSent, ctx.Err())
	}
	return fmt.Errorf("etcd: %s: %w: %w", b.at(), driver.ErrUnavailable, ctx.Err())
}

// at names the servers in errors.
func (b *Backend) at() string { return strings.Join(b.opts.Address, ",") }

// untouched is wrap for a request that can have changed no lock, whatever
// became of it.
func (b *Backend) untouched(err error) error {
	err = b.wrap(err)
	if errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrNotSent) {
		return fmt.Errorf("%w: %w", driver.ErrNotSent, err)
	}
	return err
}

// harmless tells that a request certainly changed nothing.
func (b *Backend) harmless(err error) bool {
	return refused(err) || errors.Is(err, errEpoch) || errors.Is(b.wrap(err), driver.ErrNotSent)
}
