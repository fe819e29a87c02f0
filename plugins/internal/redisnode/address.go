package redisnode

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// Address is the address of one server, with the settings from its URL.
type Address struct {
	Network string // "tcp" or "unix"
	Addr    string // host:port, or the path of a socket
	TLS     bool
	// Username, Password and DB are from the URL. DB is -1 if the URL names no database.
	Username, Password string
	DB                 int
}

// ParseAddress reads "host", "host:port", "redis://user:password@host:port/db",
// the same with "rediss" for TLS, or "unix:///path?db=1". Its errors wrap driver.ErrConfig. An
// error shows no part of the address except a known scheme, because any other part of an unreadable
// address may be a password.
func ParseAddress(text string, defaultPort int) (Address, error) {
	if !strings.Contains(text, "://") {
		if strings.Contains(text, "@") {
			return Address{}, fmt.Errorf("%w: address: user and password need a URL: redis://user:password@host:port", driver.ErrConfig)
		}
		addr, err := hostPort(text, defaultPort)
		if err != nil {
			return Address{}, fmt.Errorf("%w: address: %w", driver.ErrConfig, err)
		}
		return Address{Network: "tcp", Addr: addr, DB: -1}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		// err is dropped because it quotes the URL.
		return Address{}, fmt.Errorf("%w: address: the URL cannot be read: its port is not a number, or its password has %%, @, : or / in it that must be written as %%25, %%40, %%3A or %%2F",
			driver.ErrConfig)
	}
	return fromURL(u, defaultPort)
}

func fromURL(u *url.URL, defaultPort int) (a Address, err error) {
	a = Address{Network: "tcp", TLS: u.Scheme == "rediss", Username: u.User.Username(), DB: -1}
	a.Password, _ = u.User.Password()
	db := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "redis", "rediss":
		if a.Addr, err = hostPort(u.Host, defaultPort); err != nil {
			return Address{}, fmt.Errorf("%w: address: the host of the %s URL: %w", driver.ErrConfig, u.Scheme, err)
		}
		if u.RawQuery != "" {
			return Address{}, fmt.Errorf("%w: address: a %s URL takes no ?parameters here: use the configuration keys", driver.ErrConfig, u.Scheme)
		}
	case "unix":
		a.Network, a.Addr, db = "unix", u.Path, u.Query().Get("db")
		if u.Host != "" || u.Path == "" {
			return Address{}, fmt.Errorf("%w: address: a unix URL has three slashes and a path: unix:///run/redis.sock", driver.ErrConfig)
		}
	default:
		return Address{}, fmt.Errorf("%w: address: the scheme of the URL is none of redis, rediss and unix", driver.ErrConfig)
	}
	if db != "" {
		if a.DB, err = strconv.Atoi(db); err != nil || a.DB < 0 {
			return Address{}, fmt.Errorf("%w: address: the database in the %s URL is not a number", driver.ErrConfig, u.Scheme)
		}
	}
	return a, nil
}

var errHostPort = errors.New("it is not host:port")

// isHost reports whether host can be a host name or an IP address. A text with other characters may
// be a misplaced password, and the error of a failed connection would show it.
func isHost(host string) bool {
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return r < utf8.RuneSelf && !strings.ContainsRune("-._~:%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

func hostPort(text string, defaultPort int) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if strings.Contains(strings.Trim(text, "[]"), ":") && !strings.HasSuffix(text, "]") {
			return "", errHostPort
		}
		host, port = strings.Trim(text, "[]"), strconv.Itoa(defaultPort)
	}
	if !isHost(host) {
		return "", errHostPort
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", errors.New("its port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}
