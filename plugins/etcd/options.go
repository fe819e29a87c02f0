package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
)

// DefaultPrefix is the default of Options.Prefix.
const DefaultPrefix = "lockbench/"

// Connect are the settings of every connection to a member.
type Connect = config.Connect

// Options configure [Open]. A zero field means the default of that field. If all fields are zero,
// the backend uses a server on this machine. The tag of a field names its configuration key.
type Options struct {
	// Address lists the members, each as host:port, http://host:port, https://host:port or
	// unix:///path. Requests go to one member and, if that member fails, to another. Either all
	// members use TLS, or none does.
	Address []string `key:"address" default:"127.0.0.1:2379" doc:"members: host:port, http://, https:// or unix:///path, separated by commas"`
	Connect `request_timeout:"3s"`
	// Prefix is the beginning of every key in etcd. So locks with the same name under different
	// prefixes are different locks. Prefix must be valid UTF-8.
	Prefix string `key:"prefix" default:"lockbench/" doc:"what every key begins with; the user needs readwrite on all that does"`

	// Logger receives messages for operators; nil means slog.Default().
	Logger *slog.Logger
}

// Spec describes the backend.
var Spec = driver.Spec{
	Name: "etcd",
	Doc:  "locks in etcd: consensus, strict tokens, first come first served",
	Keys: config.KeysOf(Options{}),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o := Options{Logger: log}
		config.Decode(cfg, &o)
		return open(o)
	},
	Properties: claims,
}

// complete returns the options, with a scheme in every address, and a source that reads the files
// that the options name.
func (o Options) complete() (Options, *config.Source, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	switch {
	case !utf8.ValidString(o.Prefix):
		return o, nil, errors.New("prefix is not valid UTF-8")
	case (o.Username == "") == o.HasPassword():
		return o, nil, config.Conflict("one of them is missing", "username", "password")
	}
	secure, err := o.completeAddress()
	if err != nil {
		return o, nil, err
	}
	source, err := config.NewSource(o.Connect, secure, o.Logger)
	return o, source, err
}

// completeAddress adds a scheme to each address that has none, because the client library would use
// the first member's scheme for all members. It reports whether the addresses ask for TLS.
func (o *Options) completeAddress() (bool, error) {
	o.Address = slices.Clone(o.Address)
	secure := 0
	for i, e := range o.Address {
		full, tls, err := endpoint(e, o.Secure())
		if err != nil {
			return false, fmt.Errorf("address: member %d of %d: %w", i+1, len(o.Address), err)
		}
		if twin := slices.Index(o.Address[:i], full); twin >= 0 {
			return false, fmt.Errorf("address: members %d and %d are the same", twin+1, i+1)
		}
		o.Address[i] = full
		if tls {
			secure++
		}
	}
	if secure != 0 && secure != len(o.Address) {
		return false, fmt.Errorf("address: %d of %d members use TLS: all do, or none", secure, len(o.Address))
	}
	return secure > 0, nil
}

// endpoint returns the address e with its scheme. Its errors show no part of e,
// because any part of an unreadable address may be a password.
func endpoint(e string, secure bool) (full string, tls bool, err error) {
	if strings.HasPrefix(e, "unix:///") {
		return e, secure, nil
	}
	if !strings.Contains(e, "://") {
		scheme := "http://"
		if secure {
			scheme = "https://"
		}
		e = scheme + e
	}
	u, err := url.Parse(e)
	if err != nil {
		return "", false, errors.New("not an address")
	}
	switch {
	case u.User != nil:
		return "", false, errors.New("user and password go into username and password, not into the address")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", false, errors.New("its scheme is none of http, https, unix")
	case u.Scheme == "http" && secure:
		return "", false, errors.New("http is plain text, and the tls keys ask for TLS")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return "", false, errors.New("an address ends with its port")
	}
	if _, port, err := net.SplitHostPort(u.Host); err != nil || port == "" || u.Hostname() == "" {
		return "", false, errors.New("not host:port")
	}
	return u.Scheme + "://" + u.Host, u.Scheme == "https", nil
}
