package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// Defaults of [Options].
const (
	DefaultEndpoint       = "127.0.0.1:2379"
	DefaultPrefix         = "lockbench/"
	DefaultDialTimeout    = 2 * time.Second
	DefaultRequestTimeout = 3 * time.Second
)

// Options configure [Open]. The zero value is a server on this machine.
type Options struct {
	// Endpoints are the members, each as host:port, http://host:port,
	// https://host:port or unix:///path; DefaultEndpoint when empty. Requests go
	// round among those that answer. All of them use TLS or none.
	Endpoints []string
	// Username and Password log in; both or neither.
	Username, Password string
	// Prefix begins every key, so that locks of one name under two prefixes have
	// nothing to do with each other. Valid UTF-8; DefaultPrefix when empty.
	Prefix string
	// TLS is used for all endpoints when it is not nil.
	TLS *tls.Config
	// DialTimeout bounds logging in, RequestTimeout one request; the defaults
	// when zero.
	DialTimeout, RequestTimeout time.Duration
	// Logger gets what is of use to an operator; slog.Default() when nil.
	Logger *slog.Logger
}

// Names of the configuration keys, the same as those of other backends where
// they mean the same.
const (
	keyAddress        = "address"
	keyUsername       = "username"
	keyPassword       = "password"
	keyPrefix         = "prefix"
	keyTLS            = "tls_enabled"
	keyTLSCA          = "tls_ca_file"
	keyTLSCert        = "tls_cert_file"
	keyTLSKey         = "tls_key_file"
	keyTLSServerName  = "tls_server_name"
	keyTLSInsecure    = "tls_insecure"
	keyDialTimeout    = "dial_timeout"
	keyRequestTimeout = "request_timeout"
)

// Spec describes the backend.
var Spec = driver.Spec{
	Name: "etcd",
	Doc:  "locks in etcd: consensus, strict tokens, first come first served",
	Keys: []driver.Key{
		{Name: keyAddress, Type: driver.TypeList, Default: DefaultEndpoint, Doc: "members: host:port, http://, https:// or unix:///path, separated by commas"},
		{Name: keyUsername, Type: driver.TypeString, Doc: "user; needs readwrite on the keys that begin with prefix"},
		{Name: keyPassword, Type: driver.TypeString, Secret: true, Doc: "password of the user"},
		{Name: keyPrefix, Type: driver.TypeString, Default: DefaultPrefix, Doc: "what every key begins with"},
		{Name: keyTLS, Type: driver.TypeBool, Default: "false", Doc: "use TLS; https:// and the other tls keys imply it"},
		{Name: keyTLSCA, Type: driver.TypeString, Doc: "file with the authorities that sign servers, PEM; the system's when empty"},
		{Name: keyTLSCert, Type: driver.TypeString, Doc: "file with the client's certificate, PEM"},
		{Name: keyTLSKey, Type: driver.TypeString, Doc: "file with the client's key, PEM"},
		{Name: keyTLSServerName, Type: driver.TypeString, Doc: "name expected in the server's certificate; the host when empty"},
		{Name: keyTLSInsecure, Type: driver.TypeBool, Default: "false", Doc: "accept any certificate: for tests only"},
		{Name: keyDialTimeout, Type: driver.TypeDuration, Default: DefaultDialTimeout.String(), Doc: "bound for logging in"},
		{Name: keyRequestTimeout, Type: driver.TypeDuration, Default: DefaultRequestTimeout.String(), Doc: "bound for one request"},
	},
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o, err := parse(cfg)
		if err != nil {
			return nil, fmt.Errorf("etcd: %w: %w", driver.ErrConfig, err)
		}
		o.Logger = log
		return Open(o)
	},
	Properties: claims,
}

func parse(cfg driver.Config) (*Options, error) {
	o := &Options{
		Endpoints: cfg.List(keyAddress), Username: cfg[keyUsername], Password: cfg[keyPassword], Prefix: cfg[keyPrefix],
		DialTimeout: cfg.Duration(keyDialTimeout), RequestTimeout: cfg.Duration(keyRequestTimeout),
	}
	wanted := cfg.Bool(keyTLS) || cfg.Bool(keyTLSInsecure)
	for _, k := range []string{keyTLSCA, keyTLSCert, keyTLSKey, keyTLSServerName} {
		wanted = wanted || cfg[k] != ""
	}
	if !wanted {
		return o, nil
	}
	o.TLS = &tls.Config{ServerName: cfg[keyTLSServerName], InsecureSkipVerify: cfg.Bool(keyTLSInsecure), MinVersion: tls.VersionTLS12}
	if file := cfg[keyTLSCA]; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", keyTLSCA, err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM form", keyTLSCA, file)
		}
	}
	if cfg[keyTLSCert] != "" || cfg[keyTLSKey] != "" {
		pair, err := tls.LoadX509KeyPair(cfg[keyTLSCert], cfg[keyTLSKey])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", keyTLSCert, keyTLSKey, err)
		}
		o.TLS.Certificates = []tls.Certificate{pair}
	}
	return o, nil
}

// complete returns o with its defaults, or says what is wrong with it.
func (o Options) complete() (Options, error) {
	if len(o.Endpoints) == 0 {
		o.Endpoints = []string{DefaultEndpoint}
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = DefaultDialTimeout
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = DefaultRequestTimeout
	}
	switch {
	case o.DialTimeout < 0 || o.RequestTimeout < 0:
		return o, fmt.Errorf("%s %v and %s %v must be positive", keyDialTimeout, o.DialTimeout, keyRequestTimeout, o.RequestTimeout)
	case !utf8.ValidString(o.Prefix):
		return o, fmt.Errorf("%s is not valid UTF-8", keyPrefix)
	case (o.Username == "") != (o.Password == ""):
		return o, fmt.Errorf("%s and %s belong together: one of them is empty", keyUsername, keyPassword)
	}
	return o, o.completeEndpoints()
}

// completeEndpoints writes every endpoint with its scheme: the client takes the
// first one's for all.
func (o *Options) completeEndpoints() error {
	o.Endpoints = slices.Clone(o.Endpoints)
	secure := 0
	for i, e := range o.Endpoints {
		full, tls, err := endpoint(e, o.TLS != nil)
		if err != nil {
			return fmt.Errorf("%s: member %d of %d: %w", keyAddress, i+1, len(o.Endpoints), err)
		}
		if twin := slices.Index(o.Endpoints[:i], full); twin >= 0 {
			return fmt.Errorf("%s: members %d and %d are the same", keyAddress, twin+1, i+1)
		}
		o.Endpoints[i] = full
		if tls {
			secure++
		}
	}
	if secure != 0 && secure != len(o.Endpoints) {
		return fmt.Errorf("%s: %d of %d members use TLS: all do, or none", keyAddress, secure, len(o.Endpoints))
	}
	return nil
}

// endpoint returns e with its scheme. Its errors show no part of e: where it is
// not understood, nobody knows which part is a password.
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
		return "", false, fmt.Errorf("user and password go into %s and %s, not into the address", keyUsername, keyPassword)
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
