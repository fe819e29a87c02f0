package kinds

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// ErrNoRoute: a configuration whose connections cannot be led through a proxy.
var ErrNoRoute = errors.New("its connections cannot be led through a proxy")

// Route returns cfg with every server address replaced by what via returns for
// it: that of a proxy. It fails with [ErrNoRoute] for TLS, whose certificates
// name the server, and for addresses that are neither host:port nor of a form
// that a store has.
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

// within finds host and port in an address that is not a list of them.
func within(address string) (from, to int, ok bool) {
	for _, k := range All() {
		if k.HostIn == nil {
			continue
		}
		if at := k.HostIn.FindStringSubmatchIndex(address); at != nil {
			return at[2], at[3], true
		}
	}
	return 0, 0, false
}

// addresses splits a list; what is none may have commas of its own.
func addresses(list string) []string {
	if _, _, ok := within(list); ok {
		return []string{list}
	}
	return driver.Config{"address": list}.List("address")
}

func route(address string, via func(string) (string, error)) (string, error) {
	if from, to, ok := within(address); ok {
		other, err := via(address[from:to])
		return address[:from] + other + address[to:], err
	}
	scheme, rest, ok := strings.Cut(address, "://")
	switch {
	case !ok:
		scheme, rest = "", address
	case slices.ContainsFunc(All(), func(k *servers.Kind) bool { return k.Scheme == scheme }):
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
