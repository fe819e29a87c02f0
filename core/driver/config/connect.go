package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/lockbench/lockbench/core/driver"
)

// Connect has the options that all backends need for connections to their stores. Each backend
// embeds Connect in its Options.
type Connect struct {
	// Username and Password log in to the store. Instead of Password, PasswordFile can name a file
	// with the password. The file is read for each connection. A newline at the file's end is ignored.
	Username     string `key:"username" doc:"user"`
	Password     string `key:"password" secret:"true" doc:"password of the user"`
	PasswordFile string `key:"password_file" doc:"file with the password, read again for each connection"`

	// TLS is the TLS configuration of connections. It has no configuration key. If TLS is set,
	// TLSEnabled must not be false, and no other field about TLS may be set.
	TLS *tls.Config
	// TLSEnabled turns TLS on, with the certificate authorities of the system. Every other field about
	// TLS, and an address that asks for TLS, also turn TLS on. If one of them does so, TLSEnabled must
	// not be false.
	TLSEnabled *bool `key:"tls_enabled" doc:"connect with TLS; so does any other tls key, and false beside one is refused"`
	// TLSCAFile names a PEM file with certificate authorities, which replace those of the system. The
	// files TLSCAFile, TLSCertFile and TLSKeyFile are read again for each connection.
	TLSCAFile string `key:"tls_ca_file" doc:"authorities that sign servers, PEM, instead of the system's; read again for each connection"`
	// TLSCertFile and TLSKeyFile name PEM files with the certificate of the client and its key.
	TLSCertFile string `key:"tls_cert_file" doc:"the client's certificate, PEM; read again for each connection"`
	TLSKeyFile  string `key:"tls_key_file" doc:"the key of the client's certificate, PEM; read again for each connection"`
	// TLSServerName is the name that the server's certificate must have. The default is the host in
	// the address.
	TLSServerName string `key:"tls_server_name" doc:"name in the server's certificate, instead of the host of the address"`
	// TLSInsecure makes the client accept any certificate. It is for tests only.
	TLSInsecure bool `key:"tls_insecure" default:"false" doc:"accept any certificate (for tests)"`

	// DialTimeout limits the time to connect, with TLS and login. RequestTimeout limits one request,
	// which also ends when its caller's context ends. Both must be from 10 ms to 10 min.
	DialTimeout    time.Duration `key:"dial_timeout" default:"2s" doc:"bound of making a connection, TLS and login included; 10ms to 10m"`
	RequestTimeout time.Duration `key:"request_timeout" default:"2s" doc:"bound of one request; 10ms to 10m"`
}

const (
	minTimeout = 10 * time.Millisecond
	maxTimeout = 10 * time.Minute
)

// The parameter addressTLS of check is true if the address asks for TLS.
func (c Connect) check(addressTLS bool) error {
	var err error
	for f := range fields(reflect.ValueOf(c)) {
		if strings.HasSuffix(f.key, "_file") {
			err = errors.Join(err, namesFile(f.key, f.value.String()))
		}
	}
	if c.Password != "" && c.PasswordFile != "" {
		err = errors.Join(err, Conflict("one of them is enough", "password", "password_file"))
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		err = errors.Join(err, Conflict("one needs the other", "tls_cert_file", "tls_key_file"))
	}
	named := c.tlsKeys()
	switch off := c.TLSEnabled != nil && !*c.TLSEnabled; {
	case c.TLS != nil && (off || len(named) > 0):
		err = errors.Join(err, Conflict("set one or the other", append([]string{"Options.TLS"}, named...)...))
	case off && len(named) > 0:
		err = errors.Join(err, Conflict("the former says no TLS, and the latter needs it", append([]string{"tls_enabled=false"}, named...)...))
	case off && addressTLS:
		err = errors.Join(err, Conflict("the former says no TLS, and the latter asks for it", "tls_enabled=false", "address"))
	}
	return errors.Join(err,
		Between("dial_timeout", c.DialTimeout, minTimeout, maxTimeout),
		Between("request_timeout", c.RequestTimeout, minTimeout, maxTimeout))
}

// The value of name may be the text of a file instead of a path, such as a pasted private key. So
// the error does not show name.
func namesFile(key, name string) error {
	if len(name) > longestName || strings.ContainsFunc(name, unicode.IsControl) || strings.Contains(name, pemDashes) {
		return fmt.Errorf("%w: %s has the text of a file, and must have its name", driver.ErrConfig, key)
	}
	return nil
}

const (
	// longestName is the length limit of a path, in bytes. A longer text must be a file's contents.
	longestName = 1024
	pemDashes   = "---"
)

// tlsKeys returns the keys about TLS that are set, except tls_enabled.
func (c Connect) tlsKeys() []string {
	var named []string
	for f := range fields(reflect.ValueOf(c)) {
		if strings.HasPrefix(f.key, "tls_") && f.key != "tls_enabled" && !f.value.IsZero() {
			named = append(named, f.key)
		}
	}
	return named
}

// Secure reports whether c turns TLS on. Even if it returns false, the address may ask for TLS.
func (c Connect) Secure() bool {
	return c.TLS != nil || c.TLSEnabled != nil && *c.TLSEnabled || len(c.tlsKeys()) > 0
}

// WithoutTLS returns c with no field about TLS set.
func (c Connect) WithoutTLS() Connect {
	c.TLS, c.TLSEnabled, c.TLSInsecure = nil, nil, false
	c.TLSCAFile, c.TLSCertFile, c.TLSKeyFile, c.TLSServerName = "", "", "", ""
	return c
}

// HasPassword reports whether Password or PasswordFile is set.
func (c Connect) HasPassword() bool { return c.Password != "" || c.PasswordFile != "" }

// Between returns nil if the value of key is in the range from least to most. Otherwise it returns
// an error that wraps driver.ErrConfig.
func Between[T cmp.Ordered](key string, value, least, most T) error {
	if value >= least && value <= most {
		return nil
	}
	return fmt.Errorf("%w: %s is %v, not %v to %v", driver.ErrConfig, key, value, least, most)
}

// Conflict returns an error that wraps driver.ErrConfig, for keys whose values contradict each
// other.
func Conflict(why string, keys ...string) error {
	return fmt.Errorf("%w: %s: %s", driver.ErrConfig, strings.Join(keys, " and "), why)
}

// Invalid returns err if it wraps driver.ErrConfig. Otherwise, it returns an error that wraps both.
func Invalid(err error) error {
	if errors.Is(err, driver.ErrConfig) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrConfig, err)
}

// KeysOf returns the configuration keys of options, a struct and not a pointer. Each field with the
// tag "key" is a configuration key. The tags "default", "required", "secret" and "doc" describe it.
// The fields of an embedded struct are included. If the tag of the embedded struct has an entry
// with a key's name, that entry is the key's default. So a backend that connects slowly can write
//
//	Connect `dial_timeout:"3s"`
func KeysOf(options any) []driver.Key {
	var keys []driver.Key
	for f := range fields(reflect.ValueOf(options)) {
		tag := f.field.Tag
		keys = append(keys, driver.Key{
			Name: f.key, Type: keyType(f.field.Type), Default: f.standard,
			Required: tag.Get("required") == "true", Secret: tag.Get("secret") == "true", Doc: tag.Get("doc"),
		})
	}
	return keys
}

// Decode sets fields of a struct from cfg, which Spec.CheckConfig must have returned. The parameter
// options is a pointer to the struct.
func Decode(cfg driver.Config, options any) {
	for f := range fields(reflect.ValueOf(options).Elem()) {
		f.set(cfg)
	}
}

// Filled returns a copy of the struct that options points to, with defaults in place of zero
// fields. If options is nil, all fields have their defaults.
func Filled[O any](options *O) O {
	var o O
	if options != nil {
		o = *options
	}
	Fill(&o)
	return o
}

// Fill sets zero fields of a struct to their defaults. The parameter options points to the struct.
func Fill(options any) {
	for f := range fields(reflect.ValueOf(options).Elem()) {
		if f.value.IsZero() {
			f.set(driver.Config{f.key: f.standard})
		}
	}
}

type field struct {
	field    reflect.StructField
	value    reflect.Value
	key      string
	standard string // default value, as text
}

func (f field) set(cfg driver.Config) {
	switch f.value.Interface().(type) {
	case string:
		f.value.SetString(cfg[f.key])
	case int:
		f.value.SetInt(int64(cfg.Int(f.key)))
	case bool:
		f.value.SetBool(cfg.Bool(f.key))
	case *bool:
		if cfg[f.key] != "" {
			f.value.Set(reflect.ValueOf(new(cfg.Bool(f.key))))
		}
	case time.Duration:
		f.value.SetInt(int64(cfg.Duration(f.key)))
	case []string:
		f.value.Set(reflect.ValueOf(cfg.List(f.key)))
	}
}

func fields(v reflect.Value) func(yield func(field) bool) {
	return func(yield func(field) bool) { walk(v, "", yield) }
}

// If v is embedded in another struct, the parameter outer is the tag that v has there.
func walk(v reflect.Value, outer reflect.StructTag, yield func(field) bool) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("key")
		switch {
		case key == "" && f.Anonymous:
			if !walk(v.Field(i), f.Tag, yield) {
				return false
			}
		case key != "":
			standard, ok := outer.Lookup(key)
			if !ok {
				standard = f.Tag.Get("default")
			}
			if !yield(field{f, v.Field(i), key, standard}) {
				return false
			}
		}
	}
	return true
}

func keyType(t reflect.Type) driver.KeyType {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return driver.TypeDuration
	case reflect.TypeFor[[]string]():
		return driver.TypeList
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int:
		return driver.TypeInt
	case reflect.Bool:
		return driver.TypeBool
	}
	return driver.TypeString
}
