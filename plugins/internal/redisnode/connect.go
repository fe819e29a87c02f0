package redisnode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockbench/lockbench/core/driver"
)

// MaxPool is the most that PoolSize may be.
const MaxPool = 1000

// Connect are the settings of every connection to a server.
type Connect struct {
	// Username and Password of an ACL user, or the password alone.
	Username string `key:"username" doc:"ACL user"`
	Password string `key:"password" secret:"true" doc:"password of the ACL user, or of the default user"`

	// TLS turns on TLS with the system's certificate authorities; a rediss://
	// address and any of the files below do so too.
	TLS bool `key:"tls_enabled" default:"false" doc:"connect with TLS"`
	// TLSCAFile has the certificate authorities, in PEM, instead of the system's.
	TLSCAFile string `key:"tls_ca_file" doc:"certificate authorities in PEM, instead of the system's"`
	// TLSCertFile and TLSKeyFile are the client's own certificate, in PEM.
	TLSCertFile string `key:"tls_cert_file" doc:"the client's certificate in PEM"`
	TLSKeyFile  string `key:"tls_key_file" doc:"the key of the client's certificate in PEM"`
	// TLSServerName is the name that the server's certificate must have,
	// instead of the host of the address.
	TLSServerName string `key:"tls_server_name" doc:"name in the server's certificate, instead of the host of the address"`
	// TLSInsecure accepts any certificate: for tests only.
	TLSInsecure bool `key:"tls_insecure" default:"false" doc:"accept any certificate (for tests)"`

	// PoolSize is how many connections carry requests, and so how many batches
	// may be under way at once. More help only when the server is far away:
	// fewer make larger batches. Wake-ups have a connection more. 1 to MaxPool.
	PoolSize int `key:"pool_size" default:"2" doc:"connections that carry requests, 1 to 1000"`
	// DialTimeout, ReadTimeout and WriteTimeout bound a connection's set-up,
	// the wait for a reply, and a write. A request whose caller's context ends
	// earlier does not wait for them.
	DialTimeout  time.Duration `key:"dial_timeout" default:"2s" doc:"bound of a connection's set-up"`
	ReadTimeout  time.Duration `key:"read_timeout" default:"2s" doc:"bound of the wait for a reply"`
	WriteTimeout time.Duration `key:"write_timeout" default:"2s" doc:"bound of a write"`
}

// validate checks the settings, reads the certificates, and returns the TLS
// configuration, nil without TLS.
func (c Connect) validate(addressTLS bool) (*tls.Config, error) {
	err := errors.Join(
		between("pool_size", c.PoolSize, 1, MaxPool),
		positive("dial_timeout", c.DialTimeout),
		positive("read_timeout", c.ReadTimeout),
		positive("write_timeout", c.WriteTimeout),
	)
	if c.Username != "" && c.Password == "" {
		err = errors.Join(err, conflict("a user needs a password", "username", "password"))
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		err = errors.Join(err, conflict("one needs the other", "tls_cert_file", "tls_key_file"))
	}
	if err != nil {
		return nil, err
	}
	if !c.TLS && !addressTLS && c.TLSCAFile == "" && c.TLSCertFile == "" {
		if c.TLSServerName != "" || c.TLSInsecure {
			return nil, conflict("these mean nothing without TLS: set tls_enabled", "tls_server_name", "tls_insecure")
		}
		return nil, nil
	}
	return c.tlsConfig()
}

func (c Connect) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.TLSServerName,
		InsecureSkipVerify: c.TLSInsecure,
	}
	if c.TLSCAFile != "" {
		pem, err := os.ReadFile(c.TLSCAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: tls_ca_file: %w", driver.ErrConfig, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: tls_ca_file: %s has no certificate", driver.ErrConfig, c.TLSCAFile)
		}
	}
	if c.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: tls_cert_file and tls_key_file: %w", driver.ErrConfig, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// ClientOptions returns what every client is made with. Each new connection is
// given to connected before its first request; when that fails the connection
// is closed and the request fails with the same error, unsent.
//
// The client never sends a request a second time: its first sending may have
// been executed. It uses RESP2, which has no push frames to look for. What it
// would print about failed connections, to the standard error of the whole
// process, is dropped: the same errors reach the callers.
func (c Connect) ClientOptions(addressTLS bool, connected func(context.Context, *goredis.Conn) error) (*goredis.UniversalOptions, error) {
	tlsConfig, err := c.validate(addressTLS)
	if err != nil {
		return nil, err
	}
	goredis.SetLogger(silent{})
	return &goredis.UniversalOptions{
		Username: c.Username, Password: c.Password, Protocol: 2,
		Dialer: dialer(c.DialTimeout, tlsConfig), OnConnect: connected,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: c.DialTimeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout,
		// Two more than the lanes: for a check and a listing.
		PoolSize: c.PoolSize + 2, PoolTimeout: c.ReadTimeout, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// closeWithContext marks a context whose end closes the connections that were
// opened with it. The client does not look at a context while it reads.
type closeWithContext struct{}

// dialer connects, and tells a connection that never came about from one that
// broke.
func dialer(timeout time.Duration, tlsConfig *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	dial := d.DialContext
	if tlsConfig != nil {
		dial = (&tls.Dialer{NetDialer: d, Config: tlsConfig}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := dial(bounded, network, addr)
		if err != nil {
			return nil, &DialError{Addr: addr, Err: err}
		}
		if ctx.Value(closeWithContext{}) != nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return polled(conn), nil
	}
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
