package host

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// ErrNoRoute: a configuration whose connections cannot be led through a proxy.
var ErrNoRoute = errors.New("its connections cannot be led through a proxy")

// dsnAddress finds the address in a data source name of go-sql-driver/mysql.
var dsnAddress = regexp.MustCompile(`@tcp\(([^()]*)\)`)

// Route returns cfg with every server address replaced by what via returns for
// it: that of a proxy. It fails with [ErrNoRoute] for TLS, whose certificates
// name the server, and for addresses that are neither host:port, redis://, http:// nor the
// @tcp(...) of a data source name.
func Route(cfg driver.Config, via func(address string) (string, error)) (driver.Config, error) {
	out := driver.Config{}
	for k, v := range cfg {
		if strings.HasPrefix(k, "tls") && v != "" && v != "false" {
			return nil, fmt.Errorf("%w: %s is set", ErrNoRoute, k)
		}
		out[k] = v
	}
	var routed []string
	for _, address := range addresses(cfg["address"]) {
		to, err := route(address, via)
		if err != nil {
			return nil, err
		}
		routed = append(routed, to)
	}
	out["address"] = strings.Join(routed, ",")
	return out, nil
}

// addresses splits a list; a data source name may have commas of its own.
func addresses(list string) []string {
	if dsnAddress.MatchString(list) {
		return []string{list}
	}
	return driver.Config{"address": list}.List("address")
}

func route(address string, via func(string) (string, error)) (string, error) {
	if at := dsnAddress.FindStringSubmatchIndex(address); at != nil {
		to, err := via(address[at[2]:at[3]])
		return address[:at[2]] + to + address[at[3]:], err
	}
	scheme, rest, ok := strings.Cut(address, "://")
	switch {
	case !ok:
		scheme, rest = "", address
	case scheme == "redis" || scheme == "http":
		scheme += "://"
	default:
		return "", fmt.Errorf("%w: scheme %s", ErrNoRoute, scheme)
	}
	start := strings.LastIndexByte(rest, '@') + 1
	end := len(rest)
	if i := strings.IndexAny(rest[start:], "/?"); i >= 0 {
		end = start + i
	}
	if _, _, err := net.SplitHostPort(rest[start:end]); err != nil {
		return "", fmt.Errorf("%w: no host and port", ErrNoRoute)
	}
	to, err := via(rest[start:end])
	return scheme + rest[:start] + to + rest[end:], err
}
