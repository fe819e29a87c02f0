package wire

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// Host handles the calls that do not go to the backend. The plugin process implements it.
type Host interface {
	// Configure opens the backend. Calls of Configure do not overlap. After a
	// call that succeeded, Configure is not called again.
	Configure(ctx context.Context, s Setup) (Opened, error)
	// SessionBegan is called when a heartbeat stream begins. The returned function
	// is called when that stream ends. A live host keeps one stream open.
	SessionBegan() (ended func())
	// Close closes the backend and lets the process end after the reply.
	Close(ctx context.Context) error
}

// Opened is the result of configuring a plugin.
type Opened struct {
	Name       string // name of the backend
	Backend    driver.Backend
	SecretKeys []string // configuration keys whose values are secret
	DataSocket string   // path of the data socket, for version 2
}

// Server serves protocol version 1 for one backend.
type Server struct {
	lockpb.UnimplementedPluginServer
	host   Host
	redact *Redactor
	done   <-chan struct{}

	mu      sync.RWMutex
	backend driver.Backend
}

// Register registers the service for host. Closing done ends all streams of the service but List.
func Register(s grpc.ServiceRegistrar, host Host, redact *Redactor, done <-chan struct{}) {
	lockpb.RegisterPluginServer(s, &Server{host: host, redact: redact, done: done})
}

func (s *Server) encode(err error) *lockpb.Error { return EncodeError(err, s.redact) }

func (s *Server) open() driver.Backend {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.backend == nil {
		return unconfigured{}
	}
	return s.backend
}

// Configure implements the protocol.
func (s *Server) Configure(ctx context.Context, m *lockpb.ConfigureRequest) (*lockpb.ConfigureReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.backend != nil {
		return &lockpb.ConfigureReply{Error: s.encode(errConfigured)}, nil
	}
	o, err := s.host.Configure(ctx, Setup{
		Config:  m.Config,
		Host:    m.Host,
		Abandon: m.GetOnHostDeath().GetAbandon(),
		Delay:   time.Duration(m.GetOnHostDeath().GetDelayNs()),
	})
	if err != nil {
		return &lockpb.ConfigureReply{Error: s.encode(err)}, nil
	}
	s.backend = o.Backend
	claims := o.Backend.Properties()
	claims.Name = o.Name
	return &lockpb.ConfigureReply{
		Properties: fromProperties(claims), SecretKeys: o.SecretKeys, DataSocket: o.DataSocket,
	}, nil
}

// Close implements the protocol.
func (s *Server) Close(ctx context.Context, _ *lockpb.CloseRequest) (*lockpb.Reply, error) {
	return s.reply(s.host.Close(ctx))
}

// Check implements the protocol.
func (s *Server) Check(ctx context.Context, _ *lockpb.CheckRequest) (*lockpb.CheckReply, error) {
	b := s.open()
	err := b.Check(ctx)
	return &lockpb.CheckReply{Error: s.encode(err), Properties: fromProperties(b.Properties())}, nil
}

// TryAcquire implements the protocol.
func (s *Server) TryAcquire(ctx context.Context, m *lockpb.Request) (*lockpb.GrantReply, error) {
	return s.grant(s.open().TryAcquire(ctx, toRequest(m)))
}

// Renew implements the protocol.
func (s *Server) Renew(ctx context.Context, m *lockpb.Request) (*lockpb.Reply, error) {
	return s.reply(s.open().Renew(ctx, toRequest(m)))
}

// Release implements the protocol.
func (s *Server) Release(ctx context.Context, m *lockpb.Request) (*lockpb.Reply, error) {
	return s.reply(s.open().Release(ctx, toRequest(m)))
}

// Withdraw implements the protocol.
func (s *Server) Withdraw(ctx context.Context, m *lockpb.Request) (*lockpb.Reply, error) {
	return s.reply(s.open().Withdraw(ctx, m.Name, m.Owner))
}

// Proclaim implements the protocol.
func (s *Server) Proclaim(ctx context.Context, m *lockpb.Request) (*lockpb.Reply, error) {
	return s.reply(s.open().Proclaim(ctx, toRequest(m)))
}

// Inspect implements the protocol.
func (s *Server) Inspect(ctx context.Context, m *lockpb.InspectRequest) (*lockpb.InspectReply, error) {
	h, err := s.open().Inspect(ctx, m.Name)
	return &lockpb.InspectReply{Error: s.encode(err), Holder: FromHolder(h)}, nil
}

// Wait implements the protocol.
func (s *Server) Wait(ctx context.Context, m *lockpb.WaitRequest) (*lockpb.WaitReply, error) {
	began := time.Now()
	w := driver.WaiterOf(s.open())
	if w == nil {
		return &lockpb.WaitReply{Error: s.encode(driver.ErrUnsupported)}, nil
	}
	g, err := w.Wait(ctx, toRequest(m.Request), time.Duration(m.MaxNs))
	if g.Token == 0 {
		return &lockpb.WaitReply{Error: s.encode(err)}, nil
	}
	return &lockpb.WaitReply{Token: g.Token, WaitedNs: int64(g.Sent.Sub(began)), SpanNs: int64(g.For)}, nil
}

// Break implements the protocol.
func (s *Server) Break(ctx context.Context, m *lockpb.BreakRequest) (*lockpb.Reply, error) {
	a := driver.AdminOf(s.open())
	if a == nil {
		return s.reply(driver.ErrUnsupported)
	}
	return s.reply(a.Break(ctx, string(m.Name), m.Token))
}

// Batch implements the protocol.
func (s *Server) Batch(ctx context.Context, m *lockpb.BatchRequest) (*lockpb.BatchReply, error) {
	b := driver.BatcherOf(s.open())
	if b == nil {
		return &lockpb.BatchReply{Error: s.encode(driver.ErrUnsupported)}, nil
	}
	ops := make([]driver.Op, len(m.Ops))
	for i, op := range m.Ops {
		ops[i] = toOp(op)
	}
	reply := &lockpb.BatchReply{}
	for _, r := range b.Batch(ctx, ops) {
		reply.Results = append(reply.Results, &lockpb.GrantReply{Token: r.Token, Error: s.encode(r.Err)})
	}
	return reply, nil
}

func (s *Server) reply(err error) (*lockpb.Reply, error) {
	return &lockpb.Reply{Error: s.encode(err)}, nil
}

func (s *Server) grant(token uint64, err error) (*lockpb.GrantReply, error) {
	return &lockpb.GrantReply{Token: token, Error: s.encode(err)}, nil
}

var (
	errConfigured    = fmt.Errorf("%w: this plugin is configured already", driver.ErrInvalid)
	errNotConfigured = fmt.Errorf("%w: this plugin is not configured yet", driver.ErrInvalid)
)

// unconfigured is the backend of a plugin until Configure has succeeded.
type unconfigured struct{}

func (unconfigured) TryAcquire(context.Context, driver.Request) (uint64, error) {
	return 0, errNotConfigured
}
func (unconfigured) Renew(context.Context, driver.Request) error    { return errNotConfigured }
func (unconfigured) Release(context.Context, driver.Request) error  { return errNotConfigured }
func (unconfigured) Withdraw(context.Context, string, string) error { return errNotConfigured }
func (unconfigured) Proclaim(context.Context, driver.Request) error { return errNotConfigured }
func (unconfigured) Check(context.Context) error                    { return errNotConfigured }
func (unconfigured) Close(context.Context) error                    { return nil }
func (unconfigured) Properties() driver.Properties                  { return driver.Properties{} }
func (unconfigured) Inspect(context.Context, string) (driver.Holder, error) {
	return driver.Holder{}, errNotConfigured
}
