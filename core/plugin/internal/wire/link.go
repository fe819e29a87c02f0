package wire

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// Link is the data path to one plugin process, with every operation of a backend. Unary is the
// Link of protocol version 1. If the transport fails, the error wraps driver.ErrUnavailable.
// If it is certain that nothing was sent, the error also wraps driver.ErrNotSent.
type Link interface {
	driver.Lock
	driver.Observer
	driver.Waiter
	driver.Notifier
	driver.Watcher
	driver.Batcher
	driver.Admin
	// Check calls the backend's Check, and returns its error together with the properties known then.
	Check(ctx context.Context) (driver.Properties, error)
}

// ErrNoAnswer is wrapped by errors of the transport, but not by errors that the plugin returned.
var ErrNoAnswer = errors.New("no answer from the plugin or its store")

// Setup holds the settings that a host sends to its plugin once.
type Setup struct {
	Config  driver.Config
	Host    string        // name of the host for the plugin's log
	Abandon bool          // let the leases of a dead host expire
	Delay   time.Duration // time between the host's death and the release of its leases
}

// Unary makes one gRPC call per operation.
type Unary struct {
	rpc lockpb.PluginClient
}

var _ Link = (*Unary)(nil)

// NewUnary returns the data path over conn. The caller still owns conn and must close it.
func NewUnary(conn grpc.ClientConnInterface) *Unary {
	return &Unary{rpc: lockpb.NewPluginClient(conn)}
}

// DialOptions returns the options of a connection for [NewUnary].
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		// If gRPC repeated requests, the host could not know whether a request was sent.
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	}
}

// ServerOptions returns the options of a server for [Register].
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage)}
}

// Configured is the answer of a plugin to Configure.
type Configured struct {
	Properties driver.Properties
	SecretKeys []string
	DataSocket string // path of the data socket of version 2; "" in version 1
}

// Configure makes the plugin open its backend with these settings.
func (u *Unary) Configure(ctx context.Context, s Setup) (Configured, error) {
	reply, err := u.rpc.Configure(ctx, &lockpb.ConfigureRequest{
		Config:      s.Config,
		Host:        s.Host,
		OnHostDeath: &lockpb.OnHostDeath{Abandon: s.Abandon, DelayNs: int64(s.Delay)},
	})
	if err := outcome(ctx, reply.GetError(), err); err != nil {
		return Configured{}, err
	}
	return Configured{toProperties(reply.Properties), reply.SecretKeys, reply.DataSocket}, nil
}

// Close makes the plugin close its backend and then exit.
func (u *Unary) Close(ctx context.Context) error {
	reply, err := u.rpc.Close(ctx, &lockpb.CloseRequest{})
	return outcome(ctx, reply.GetError(), err)
}

// Check implements [Link].
func (u *Unary) Check(ctx context.Context) (driver.Properties, error) {
	reply, err := ask(ctx, u.rpc.Check, "", &lockpb.CheckRequest{})
	return toProperties(reply.GetProperties()), err
}

// TryAcquire implements [driver.Lock].
func (u *Unary) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	reply, err := ask(ctx, u.rpc.TryAcquire, r.Name, fromRequest(r))
	return reply.GetToken(), err
}

// Renew implements [driver.Lock].
func (u *Unary) Renew(ctx context.Context, r driver.Request) error {
	_, err := ask(ctx, u.rpc.Renew, r.Name, fromRequest(r))
	return err
}

// Release implements [driver.Lock].
func (u *Unary) Release(ctx context.Context, r driver.Request) error {
	_, err := ask(ctx, u.rpc.Release, r.Name, fromRequest(r))
	return err
}

// Withdraw implements [driver.Lock].
func (u *Unary) Withdraw(ctx context.Context, name, owner string) error {
	_, err := ask(ctx, u.rpc.Withdraw, name, &lockpb.Request{Name: name, Owner: owner})
	return err
}

// Proclaim implements [driver.Lock].
func (u *Unary) Proclaim(ctx context.Context, r driver.Request) error {
	_, err := ask(ctx, u.rpc.Proclaim, r.Name, fromRequest(r))
	return err
}

// Inspect implements [driver.Lock].
func (u *Unary) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	reply, err := ask(ctx, u.rpc.Inspect, name, &lockpb.InspectRequest{Name: name})
	return ToHolder(reply.GetHolder()), err
}

// Wait implements [driver.Waiter].
func (u *Unary) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	began := time.Now()
	reply, err := ask(ctx, u.rpc.Wait, r.Name, &lockpb.WaitRequest{Request: fromRequest(r), MaxNs: int64(max)})
	if err != nil || reply.GetToken() == 0 {
		return driver.Grant{}, Ended(ctx, err)
	}
	return driver.Grant{Token: reply.Token, Sent: began.Add(time.Duration(reply.WaitedNs)), For: time.Duration(reply.SpanNs)}, nil
}

// Break implements [driver.Admin].
func (u *Unary) Break(ctx context.Context, name string, token uint64) error {
	_, err := ask(ctx, u.rpc.Break, "", &lockpb.BreakRequest{Name: []byte(name), Token: token})
	return err
}

type withError interface{ GetError() *lockpb.Error }

// ask makes one call. Its name parameter is the lock's name, or "" if the message names no lock.
func ask[Q any, A withError](
	ctx context.Context, do func(context.Context, Q, ...grpc.CallOption) (A, error), name string, request Q,
) (reply A, err error) {
	if err := unsent(ctx, name); err != nil {
		return reply, err
	}
	reply, err = do(ctx, request)
	return reply, outcome(ctx, reply.GetError(), err)
}

// unsent returns an error if ctx has ended or a message cannot contain this name.
func unsent(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w (%w): %w", driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: name %q is not valid UTF-8", driver.ErrInvalid, name)
	}
	return nil
}

// outcome returns the error of a call, either from the plugin's answer or from gRPC. An error from
// gRPC never results in ErrNotSent, because gRPC cannot prove that a call was not sent.
func outcome(ctx context.Context, answer *lockpb.Error, transport error) error {
	if transport == nil {
		err := DecodeError(answer)
		if errors.Is(err, context.DeadlineExceeded) {
			AwaitDeadline(ctx)
		}
		return err
	}
	s := status.Convert(transport)
	if s.Code() == codes.DeadlineExceeded {
		AwaitDeadline(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, ErrNoAnswer, ctx.Err())
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("%w: %s", driver.ErrUnsupported, Bound(s.Message()))
	}
	return fmt.Errorf("%w: %w: %s", driver.ErrUnavailable, ErrNoAnswer, Bound(s.Message()))
}

// deadlineSkew bounds the difference between timers. For the same deadline, the timers of gRPC and
// of the plugin may fire earlier than the host's timer, but by no more than deadlineSkew.
const deadlineSkew = 100 * time.Millisecond

// AwaitDeadline waits until ctx has ended, if ctx's deadline is near. Call it when the plugin says
// that the deadline has passed, so that ctx has ended when the operation returns.
func AwaitDeadline(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < deadlineSkew {
		<-ctx.Done()
	}
}

// Ended returns ctx.Err() itself if err wraps it, as Wait must do. Otherwise it returns err.
func Ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ctx.Err()
	}
	return err
}
