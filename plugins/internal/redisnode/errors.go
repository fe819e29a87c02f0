package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

// DialError says that a connection to Addr could not be made.
type DialError struct {
	Addr string
	Err  error
}

func (e *DialError) Error() string {
	if op, ok := e.Err.(*net.OpError); ok && op.Err != nil {
		// op.Error() would name the operation and the address a second time.
		return fmt.Sprintf("cannot connect to %s: %v", e.Addr, op.Err)
	}
	return fmt.Sprintf("cannot connect to %s: %v", e.Addr, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }

// verdict is what an error reply of the server means.
type verdict struct {
	sentinel error
	notSent  bool // no part of the request was executed
	astray   bool // this server does not serve, but the address may lead to a server that does
	advice   string
}

const needsRights = "the ACL user needs +@read +@write +@scripting +@pubsub +@connection +time +info +select +wait +cluster|slots, on the keys and channels of the prefix"

// verdicts has the meaning of each code that an error reply may start with. A server that replies
// with such a code has changed nothing: it has refused a login, or a script before its first write.
// Only NOPERM (a missing right) may also come after a script's first write.
var verdicts = map[string]verdict{
	"NOAUTH":      {sentinel: driver.ErrDenied, notSent: true, advice: "the server wants a password: set username and password"},
	"WRONGPASS":   {sentinel: driver.ErrDenied, notSent: true, advice: "wrong username or password"},
	"NOPERM":      {sentinel: driver.ErrDenied, advice: needsRights},
	"DENIED":      {sentinel: driver.ErrDenied, notSent: true, advice: "protected mode: the server accepts only local clients without a password"},
	"READONLY":    {sentinel: driver.ErrUnavailable, notSent: true, astray: true, advice: "a failover is under way, or this is a read-only replica for good: then give the master's address, or sentinel_master"},
	"OOM":         {sentinel: driver.ErrUnavailable, notSent: true, advice: "the server has reached maxmemory"},
	"MISCONF":     {sentinel: driver.ErrUnavailable, notSent: true, advice: "the server cannot save its data and refuses writes: see its log"},
	"NOREPLICAS":  {sentinel: driver.ErrUnavailable, notSent: true, advice: "fewer replicas than min-replicas-to-write"},
	"LOADING":     {sentinel: driver.ErrUnavailable, notSent: true, astray: true, advice: "the server is still loading its data"},
	"BUSY":        {sentinel: driver.ErrUnavailable, notSent: true, advice: "another client's script does not end"},
	"MASTERDOWN":  {sentinel: driver.ErrUnavailable, notSent: true, astray: true, advice: "a replica without its master"},
	"CLUSTERDOWN": {sentinel: driver.ErrUnavailable, notSent: true, advice: "the Cluster has no master for this slot"},
	"TRYAGAIN":    {sentinel: driver.ErrUnavailable, notSent: true, advice: "the slot is being moved"},
	"MOVED":       {sentinel: driver.ErrUnavailable, notSent: true, advice: "this server is part of a Cluster: set cluster"},
	"ASK":         {sentinel: driver.ErrUnavailable, notSent: true, advice: "the slot is being moved"},
	"CROSSSLOT":   {sentinel: driver.ErrDenied, advice: "this server is part of a Cluster: set cluster"},
}

const (
	needsScripts  = "this store does not run the scripts that locks are made of; Redis from 6.0 on and Valkey do"
	needsDatabase = "see db: the server has fewer databases; a Cluster has one, or as many as cluster-databases says in Valkey from 9 on"
	needsCommand  = "this store lacks a command; Redis from 6.0 on and Valkey have all"
)

// nevers lists texts, in lower case, of error replies that have no code. The server gives the same
// reply to each try until an operator changes a setting or the store.
var nevers = []struct{ text, advice string }{
	{"acl failure in script", needsRights},         // Redis from 7.2 on, Valkey
	{"the user executing the script", needsRights}, // Redis 7.0
	{"unknown command", needsCommand},
	{"unknown redis command", needsCommand},
	{"unsupported command", needsCommand},
	{"lua scripting is not enabled", needsScripts},
	{"bad lua script", needsScripts},
	{"error compiling script", needsScripts},
	{"undeclared key", needsScripts + "; Dragonfly does with --default_lua_flags=allow-undeclared-keys"},
	{"cluster support disabled", "this server is no part of a Cluster: cluster must not be set"},
	{"db index", needsDatabase},
	{"invalid db", needsDatabase},
	{"select is not allowed", needsDatabase},
}

// scriptError finds the code in the text with which Redis 6 reports an error inside a script.
var scriptError = regexp.MustCompile(`-([A-Z]+) `)

// allSentinels is the client's error text when no sentinel has named a master.
const allSentinels = "all sentinels specified in configuration are unreachable"

// Explain turns an error of the client into an error of package driver. The new error wraps err,
// and usually says what a user can do about it.
func Explain(err error) error {
	var reply goredis.Error
	var dial *DialError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrDenied):
		return err
	case strings.Contains(err.Error(), allSentinels) && strings.Contains(err.Error(), "TLS"):
		return fmt.Errorf("%w: %w: sentinel_tls_enabled says whether the sentinels have TLS, when the servers differ: %w",
			driver.ErrUnavailable, driver.ErrNotSent, err)
	case errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, goredis.ErrClosed):
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	case strings.Contains(err.Error(), allSentinels) && errors.Is(err, goredis.Nil):
		return fmt.Errorf("%w: %w: the sentinels watch no master of this name: see sentinel_master: %w", driver.ErrDenied, driver.ErrNotSent, err)
	case strings.Contains(err.Error(), allSentinels), errors.As(err, &dial),
		errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
	case errors.As(err, &reply):
		return explainReply(reply)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no reply in time: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// Astray reports whether err says that the server does not serve: it is a replica, is loading its
// data, or has lost its master. A new connection may lead to a server that serves.
func Astray(err error) bool {
	var reply goredis.Error
	if !errors.As(err, &reply) {
		return false
	}
	_, v, _ := verdictOn(reply)
	return v.astray
}

func verdictOn(reply goredis.Error) (text string, v verdict, known bool) {
	text = strings.TrimPrefix(reply.Error(), "ERR ")
	code, _, _ := strings.Cut(text, " ")
	v, known = verdicts[code]
	if m := scriptError.FindStringSubmatch(text); !known && m != nil {
		v, known = verdicts[m[1]]
	}
	return text, v, known
}

func explainReply(reply goredis.Error) error {
	text, v, known := verdictOn(reply)
	switch {
	case known && v.notSent:
		return fmt.Errorf("%w: %w: %s: %w", v.sentinel, driver.ErrNotSent, v.advice, reply)
	case known:
		return fmt.Errorf("%w: %s: %w", v.sentinel, v.advice, reply)
	case strings.HasPrefix(text, "max number of clients"):
		return fmt.Errorf("%w: %w: raise maxclients: %w", driver.ErrUnavailable, driver.ErrNotSent, reply)
	case strings.HasPrefix(text, "AUTH"), strings.HasPrefix(text, "invalid password"), strings.HasPrefix(text, "Client sent AUTH"):
		return fmt.Errorf("%w: %w: wrong username or password: %w", driver.ErrDenied, driver.ErrNotSent, reply)
	}
	for _, n := range nevers {
		if strings.Contains(strings.ToLower(text), n.text) {
			return fmt.Errorf("%w: %s: %w", driver.ErrDenied, n.advice, reply)
		}
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, reply)
}

// Unsent returns an error that wraps err and driver.ErrNotSent. Call it for an error in the set-up
// of a connection, before its first request.
func Unsent(err error) error {
	if errors.Is(err, driver.ErrNotSent) {
		return err
	}
	return fmt.Errorf("%w: %w", err, driver.ErrNotSent)
}
