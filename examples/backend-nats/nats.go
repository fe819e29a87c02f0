// Package nats is a backend that keeps locks in a bucket of NATS JetStream KV, with package cas.
// Package cas uses these features of a store: compare-and-set, a clock, keys that expire, and
// messages about changes. It needs no scripts or transactions.
//
// Times come from the clock of the server that leads the bucket's stream. A stream with one replica
// loses the writes of the last two minutes if the server's machine crashes, unless the server has
// sync_interval: always. A stream with three replicas loses these writes if two machines crash.
//
// If bin contains nats-server and lockplugin-nats, this command tests the backend:
//
//	bin/lockbench faults --backends nats --plugin-dir bin --claims examples/backend-nats/claims.json \
//		--server "$PWD/bin/nats-server --addr 127.0.0.1 --port {port} --jetstream --store_dir {dir}"
package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/cas"
	"github.com/lockbench/lockbench/core/driver/config"
)

// Options are the settings of the backend; each field is a configuration key.
type Options struct {
	Address  []string `key:"address" required:"true" doc:"host:port of servers of one cluster"`
	Prefix   string   `key:"prefix" default:"locks" doc:"name of the bucket, [a-zA-Z0-9_-]; made where it is not there"`
	Replicas int      `key:"replicas" default:"1" doc:"replicas of a bucket that is made: 1, 3 or 5"`
	config.Connect
}

var Spec = driver.Spec{
	Name:       "nats",
	Doc:        "locks in a bucket of NATS JetStream KV (2.11 or later)",
	Keys:       config.KeysOf(Options{}),
	Open:       open,
	Properties: properties,
}

// Fencing is durable, because each token is the sequence number of a message in the stream.
var properties = cas.Properties(driver.Properties{
	Name: "nats", Fencing: driver.FencingDurable,
	TTLMin: 100 * time.Millisecond, TTLStep: time.Millisecond, TTLMax: 24 * time.Hour,
	Durability: "unknown",
}, true)

const (
	// retryFor is the pause between two attempts to connect to a server.
	retryFor = 100 * time.Millisecond
	// markerFor is the lifetime of the marker that replaces a deleted key.
	markerFor = time.Second
	// clockOff is the largest error allowed for the clock of a host that creates a bucket.
	clockOff = 10 * time.Second
)

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

func open(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
	var o Options
	config.Decode(cfg, &o)
	if !bucketName.MatchString(o.Prefix) {
		return nil, fmt.Errorf("nats: %w: prefix is not of [a-zA-Z0-9_-]", driver.ErrConfig)
	}
	source, err := config.NewSource(o.Connect, false, log)
	if err != nil {
		return nil, fmt.Errorf("nats: %w", err)
	}
	s := &store{bucket: o.Prefix, replicas: o.Replicas, tried: make(chan struct{}), connecting: make(chan struct{}), watches: map[*func()]bool{}}
	options, err := s.options(o, source, log)
	if err != nil {
		return nil, fmt.Errorf("nats: %w: address: %w", driver.ErrConfig, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.connect(ctx, strings.Join(o.Address, ","), options)
	return cas.New(s, properties, o.RequestTimeout), nil
}

func (s *store) options(o Options, source *config.Source, log *slog.Logger) ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name("lockbench"), nats.Timeout(o.DialTimeout), nats.MaxReconnects(-1),
		nats.ReconnectWait(retryFor), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // a message that cannot be sent now is not sent later
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2),
		nats.ReconnectHandler(func(*nats.Conn) { s.missed() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("NATS reports an error", "error", err)
			s.missed()
		}),
	}
	if o.Username != "" {
		options = append(options, nats.UserInfoHandler(func() (string, string) { return o.Username, source.Password() }))
	}
	var hosts []string
	for _, address := range o.Address {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, errors.New("not host:port") // the error omits the address, which may contain a password
		}
		hosts = append(hosts, host)
	}
	if tls := source.LastingTLSConfig(hosts); tls != nil {
		options = append(options, nats.Secure(tls))
	}
	return options, nil
}

type store struct {
	bucket   string
	replicas int

	stop       context.CancelFunc // ends connect
	tried      chan struct{}      // closed after connect's first attempt
	connecting chan struct{}      // closed when connect has returned

	mu      sync.Mutex
	conn    *nats.Conn // nil until the first connection
	refused error      // the last attempt's error, until the first connection
	js      jetstream.JetStream
	stream  jetstream.Stream // nil while unknown
	watches map[*func()]bool
}

// connect repeats attempts to connect until one succeeds. It does not let the client library repeat
// them, because the library would not keep the reason for a failure.
func (s *store) connect(ctx context.Context, addresses string, options []nats.Option) {
	defer close(s.connecting)
	for first := true; ; first = false {
		conn, err := nats.Connect(addresses, options...)
		s.mu.Lock()
		if s.conn, s.refused = conn, err; err == nil {
			s.js, s.refused = jetstream.New(conn)
		}
		s.mu.Unlock()
		if first {
			close(s.tried)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(retryFor):
		case <-ctx.Done():
			return
		}
	}
}

func (s *store) subject(key string) string { return "$KV." + s.bucket + "." + key }
func (s *store) changes(key string) string { return "lockbench.changes." + s.bucket + "." + key }

// open returns the stream of the bucket, and creates it if there is none.
func (s *store) open(ctx context.Context) (jetstream.Stream, error) {
	select {
	case <-s.tried:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	conn, refused, stream := s.conn, s.refused, s.stream
	s.mu.Unlock()
	switch {
	case conn == nil || refused != nil:
		return nil, away(refused)
	case conn.IsClosed():
		return nil, driver.ErrClosed
	case !conn.IsConnected():
		return nil, away(conn.LastError())
	}
	if stream != nil {
		return stream, nil
	}
	stream, err := s.js.Stream(ctx, "KV_"+s.bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = s.create(ctx)
	}
	if err != nil {
		return nil, s.explain(err)
	}
	if err := suits(stream.CachedInfo()); err != nil {
		return nil, fmt.Errorf("%w: bucket %s: %w", driver.ErrDenied, s.bucket, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = stream
	return stream, nil
}

// create sets the first sequence number to the host's time in microseconds, so that sequence
// numbers rise even if the data of an older stream were lost.
func (s *store) create(ctx context.Context) (jetstream.Stream, error) {
	stream, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + s.bucket, Subjects: []string{s.subject(">")}, Storage: jetstream.FileStorage, Replicas: s.replicas,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, AllowMsgTTL: true,
		FirstSeq:  uint64(time.Now().UnixMicro()),
		RePublish: &jetstream.RePublish{Source: s.subject(">"), Destination: s.changes(">"), HeadersOnly: true},
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another host was faster
		return s.js.Stream(ctx, "KV_"+s.bucket)
	}
	return stream, err
}

// suits returns nil if the stream can keep locks, and otherwise an error that says why it cannot.
func suits(i *jetstream.StreamInfo) error {
	c := i.Config
	switch {
	case !c.AllowMsgTTL, c.MaxMsgsPerSubject != 1, c.RePublish == nil, c.MaxAge != 0:
		return errors.New("it was not made by this backend: name another one in prefix")
	case c.AllowDirect:
		return errors.New("replicas answer for it, which lag behind: turn allow_direct off")
	case i.Created.UnixMicro()-int64(c.FirstSeq) > clockOff.Microseconds() || int64(c.FirstSeq)-i.Created.UnixMicro() > clockOff.Microseconds():
		return fmt.Errorf("its first sequence %d is not the time at which it was made, %v: the clock of the host that made it was wrong, so delete it", c.FirstSeq, i.Created)
	}
	return nil
}

// explain wraps the error of a request in the matching error of package driver.
func (s *store) explain(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrNoStreamResponse):
		s.mu.Lock()
		s.stream = nil // the next request opens it again
		s.mu.Unlock()
	case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return fmt.Errorf("%w: %w", cas.ErrConflict, err)
	case !s.conn.IsConnected():
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

// The function away returns the error for requests without a connection. err is the reason, or nil.
func away(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("%w: %w: see username and password: %w", driver.ErrDenied, driver.ErrNotSent, err)
	case err == nil:
		err = errors.New("no connection")
	}
	return config.Unanswered("NATS server", err)
}

// Read requests the key's message and the server's clock at the same time.
func (s *store) Read(ctx context.Context, key string) (cas.Entry, error) {
	stream, err := s.open(ctx)
	if err != nil {
		return cas.Entry{}, err
	}
	info, told := (*jetstream.StreamInfo)(nil), make(chan error, 1)
	go func() {
		var err error
		info, err = stream.Info(ctx)
		told <- err
	}()
	m, err := stream.GetLastMsgForSubject(ctx, s.subject(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		m, err = &jetstream.RawStreamMsg{}, nil
	}
	if err := errors.Join(<-told, err); err != nil {
		return cas.Entry{}, s.explain(err)
	}
	return entry(m, info.TimeStamp), nil
}

// entry makes an Entry of the message m. The Value is empty if m marks a deleted key.
func entry(m *jetstream.RawStreamMsg, now time.Time) cas.Entry {
	return cas.Entry{Value: m.Data, Revision: m.Sequence, Written: m.Time, Now: now}
}

func (s *store) Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (cas.Entry, error) {
	return s.publish(ctx, &nats.Msg{Subject: s.subject(key), Data: value}, revision, ttl)
}

// Delete replaces the value by a marker, as other clients of JetStream KV do.
func (s *store) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := s.publish(ctx, &nats.Msg{Subject: s.subject(key), Header: nats.Header{"KV-Operation": {"PURGE"}}}, revision, markerFor)
	return err
}

// publish stores m if its subject still has the given revision. It rounds ttl up to whole seconds.
func (s *store) publish(ctx context.Context, m *nats.Msg, revision uint64, ttl time.Duration) (cas.Entry, error) {
	if _, err := s.open(ctx); err != nil {
		return cas.Entry{}, err
	}
	seconds := (ttl + time.Second - 1).Truncate(time.Second)
	ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(max(seconds, time.Second)))
	if err != nil {
		return cas.Entry{}, s.explain(err)
	}
	return cas.Entry{Revision: ack.Sequence}, nil
}

func (s *store) List(ctx context.Context, emit func(cas.Entry) bool) error {
	stream, err := s.open(ctx)
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return s.explain(err)
	}
	for subject := range info.State.Subjects {
		m, err := stream.GetLastMsgForSubject(ctx, subject)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // the key has expired
		}
		if err != nil {
			return s.explain(err)
		}
		if len(m.Data) > 0 && !emit(entry(m, info.TimeStamp)) {
			return nil
		}
	}
	return nil
}

func (s *store) Check(ctx context.Context) (cas.About, error) {
	e, err := s.Read(ctx, "check")
	if err != nil {
		return cas.About{}, err
	}
	if _, err := s.publish(ctx, &nats.Msg{Subject: s.subject("check"), Header: nats.Header{"KV-Operation": {"PURGE"}}}, e.Revision, markerFor); err != nil && !errors.Is(err, cas.ErrConflict) {
		return cas.About{}, err
	}
	stream, err := s.open(ctx)
	if err != nil {
		return cas.About{}, err
	}
	c := stream.CachedInfo().Config
	return cas.About{
		Server:     "NATS " + s.conn.ConnectedServerVersion(),
		Durability: fmt.Sprintf("%s storage, replicas: %d, synced as the server's sync_interval says", strings.ToLower(c.Storage.String()), c.Replicas),
	}, nil
}

// Watch subscribes to the messages that the stream republishes after it has stored them. A
// connection sends messages in order, so the server gets the subscription before any later Read.
func (s *store) Watch(key string, changed func()) (func(), error) {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return nil, fmt.Errorf("%w: %w: not connected yet", driver.ErrUnavailable, driver.ErrNotSent)
	}
	sub, err := conn.Subscribe(s.changes(key), func(*nats.Msg) { changed() })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[&changed] = true
	return func() {
		_ = sub.Unsubscribe() // fails only when the connection is closed
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, &changed)
	}, nil
}

// missed reports to all watches that a change may have been missed.
func (s *store) missed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for changed := range s.watches {
		(*changed)()
	}
}

func (s *store) Close(ctx context.Context) error {
	s.stop()
	select {
	case <-s.connecting:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	return nil
}
