package conn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// ended is a connection that the server ends after its greeting.
type ended struct {
	net.Conn
	greeting io.Reader
}

func (c ended) Read(p []byte) (int, error) { return c.greeting.Read(p) }

func (ended) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

// greeting returns the first packet (protocol 10) of a server that supports TLS.
func greeting() io.Reader {
	said := "\x0a8.0.0\x00" + "\x01\x00\x00\x00" + "12345678\x00" + "\xff\xff" + "\x2d" + "\x02\x00" + "\xff\x00" + "\x15" +
		strings.Repeat("\x00", 10) + "123456789012\x00" + "mysql_native_password\x00"
	return strings.NewReader(string([]byte{byte(len(said)), 0, 0, 0}) + said)
}

// TestEndedWhileSetUp checks Open if the server ends the connection before the driver writes. The
// driver's error is only "bad connection". Open's error must also name tls_cert_file.
func TestEndedWhileSetUp(t *testing.T) {
	for _, secure := range []bool{false, true} {
		cfg := mysqldriver.NewConfig()
		cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			t.Cleanup(func() { _ = there.Close() })
			return ended{here, greeting()}, nil
		}
		backendtest.Must(t, cfg.Apply(mysqldriver.BeforeConnect(func(ctx context.Context, own *mysqldriver.Config) error {
			if secure {
				own.TLS = &tls.Config{ServerName: "db"}
			}
			own.Logger = conn.Logger(ctx)
			return nil
		})))
		connector, err := mysqldriver.NewConnector(cfg)
		backendtest.Must(t, err)
		_, err = conn.Open(t.Context(), connector, "SELECT 1")
		if !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, syscall.EPIPE) {
			t.Errorf("secure %v: %v", secure, err)
		}
		if !strings.Contains(err.Error(), "tls_cert_file") {
			t.Errorf("secure %v: %v", secure, err)
		}
	}
}
