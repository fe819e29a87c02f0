package redisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func TestExplain(t *testing.T) {
	refused := &DialError{Addr: "10.0.0.1:6379", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	cases := []struct {
		err     error
		want    error
		notSent bool
		says    string
	}{
		{err: refused, want: driver.ErrUnavailable, notSent: true, says: "cannot connect to 10.0.0.1:6379: connection refused"},
		{err: fmt.Errorf("pool: %w", goredis.ErrPoolTimeout), want: driver.ErrUnavailable, notSent: true},
		{err: goredis.ErrClosed, want: driver.ErrClosed},
		{err: io.EOF, want: driver.ErrUnavailable},
		{err: os.ErrDeadlineExceeded, want: driver.ErrUnavailable},
		{err: context.DeadlineExceeded, want: driver.ErrUnavailable, says: "no reply in time"},
		{err: replyError("NOAUTH Authentication required."), want: driver.ErrDenied, notSent: true, says: "set username and password"},
		{err: replyError("WRONGPASS invalid username-password pair"), want: driver.ErrDenied, notSent: true, says: "wrong username or password"},
		{err: replyError("ERR invalid password"), want: driver.ErrDenied, notSent: true, says: "wrong username or password"},
		{err: replyError("NOPERM this user has no permissions"), want: driver.ErrDenied, says: "+@scripting"},
		{err: replyError("ERR Error running script (call to f_1): @user_script:1: -NOPERM this user"), want: driver.ErrDenied},
		{err: replyError("READONLY You can't write against a read only replica."), want: driver.ErrUnavailable, notSent: true, says: "failover"},
		{err: replyError("ERR The user executing the script can't run this command or subcommand script: 2, on @user_script:1."), want: driver.ErrDenied, says: "+time"},
		{err: replyError("OOM command not allowed"), want: driver.ErrUnavailable, notSent: true, says: "maxmemory"},
		{err: replyError("MISCONF Redis is configured to save"), want: driver.ErrUnavailable, notSent: true, says: "cannot save"},
		{err: replyError("LOADING Redis is loading the dataset in memory"), want: driver.ErrUnavailable, notSent: true},
		{err: replyError("BUSY Redis is busy running a script"), want: driver.ErrUnavailable, notSent: true},
		{err: replyError("CLUSTERDOWN Hash slot not served"), want: driver.ErrUnavailable, notSent: true},
		{err: replyError("MASTERDOWN Link with MASTER is down"), want: driver.ErrUnavailable, notSent: true},
		{err: replyError("TRYAGAIN Multiple keys request during rehashing of slot"), want: driver.ErrUnavailable, notSent: true},
		{err: replyError("MOVED 3999 127.0.0.1:6381"), want: driver.ErrUnavailable, notSent: true, says: "set cluster"},
		{err: replyError("ERR max number of clients reached"), want: driver.ErrUnavailable, notSent: true},
		{err: replyError("ERR DB index is out of range"), want: driver.ErrDenied},
		{err: replyError("ERR ACL failure in script: User app has no permissions to run the 'set' command script: on @user_script:235."), want: driver.ErrDenied, says: "+time"},
		{err: replyError("ERR Unknown command called from script script: on @user_script:1."), want: driver.ErrDenied, says: "lacks a command"},
		{err: replyError("ERR Unknown Redis command called from script"), want: driver.ErrDenied, says: "lacks a command"},
		{err: replyError("ERR unsupported command"), want: driver.ErrDenied, says: "lacks a command"},
		{err: replyError("ERR bad lua script for redis cluster"), want: driver.ErrDenied, says: "does not run the scripts"},
		{err: replyError("ERR LUA scripting is not enabled"), want: driver.ErrDenied, says: "does not run the scripts"},
		{err: replyError("ERR script tried accessing undeclared key"), want: driver.ErrDenied, says: "allow-undeclared-keys"},
		{err: replyError("ERR Script attempted to access a non local key in a cluster node"), want: driver.ErrUnavailable}, // the slot is being moved
		{err: replyError("ERR This instance has cluster support disabled"), want: driver.ErrDenied, says: "cluster must not be set"},
		{err: fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(goredis.Nil)), want: driver.ErrDenied, notSent: true, says: "see sentinel_master"},
		{err: replyError("ERR something new"), want: driver.ErrUnavailable},
	}
	for _, c := range cases {
		got := Explain(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%v became %v, want %v", c.err, got, c.want)
		}
		if errors.Is(got, driver.ErrNotSent) != c.notSent {
			t.Errorf("%v became %v: not sent is %v", c.err, got, !c.notSent)
		}
		if !strings.Contains(got.Error(), c.says) {
			t.Errorf("%q does not say %q", got, c.says)
		}
		if again := Explain(got); c.want != driver.ErrClosed && again.Error() != got.Error() {
			t.Errorf("explained twice: %v", again)
		}
	}
	if err := Explain(nil); err != nil {
		t.Errorf("nothing became %v", err)
	}
}
