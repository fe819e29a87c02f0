package redisnode

import (
	"fmt"

	"github.com/lockbench/lockbench/core/driver"
)

// The codes that a refusal starts with; lua/head.lua has the same.
const (
	CodeHeld = iota + 1
	CodeNotHeld
	CodeWithdrawn
	CodeTurn
	CodeRefused
)

// Refusal is an error of the server inside a script, which went on.
type Refusal string

func (e Refusal) Error() string { return string(e) }

// RedisError makes it a [goredis.Error].
func (Refusal) RedisError() {}

// decode reads the reply to one operation on name.
func decode(name string, reply any) driver.Result {
	if token, ok := reply.(int64); ok {
		return driver.Result{Token: uint64(token)}
	}
	fields, ok := reply.([]any)
	if !ok || len(fields) == 0 {
		return driver.Result{Err: ErrReply(reply)}
	}
	switch fields[0] {
	case int64(CodeHeld), int64(CodeNotHeld):
		return driver.Result{Err: decodeRefusal(name, fields)}
	case int64(CodeWithdrawn):
		return driver.Result{Err: driver.ErrWithdrawn}
	case int64(CodeRefused):
		text, _ := fields[len(fields)-1].(string)
		return driver.Result{Err: Refusal(text)}
	case int64(CodeTurn):
		return driver.Result{Err: &driver.HeldError{Holder: reserved(name, fields)}}
	}
	return driver.Result{Err: ErrReply(reply)}
}

// reserved is a lock that is free and kept for the first of the queue. There
// is no holder to name, only the time after which asking again makes sense.
func reserved(name string, fields []any) driver.Holder {
	ms := int64(1)
	if len(fields) > 1 {
		ms, _ = fields[1].(int64)
	}
	return driver.Holder{Name: name, TTL: ttl(max(ms, 1)), Waiters: -1}
}

func decodeRefusal(name string, fields []any) error {
	if len(fields) < 3 {
		return ErrReply(fields)
	}
	raw, _ := fields[1].(string)
	ms, _ := fields[2].(int64)
	h := parseHolder(name, raw, ms, -1)
	// Only the head of the value came with the refusal, and a part of a
	// published value is worse than none.
	h.Value = nil
	if fields[0] == int64(CodeHeld) {
		return &driver.HeldError{Holder: h}
	}
	return &driver.NotHeldError{Holder: h}
}

// queued reports whether a refused acquire found its owner in the queue.
func queued(reply any) bool {
	fields, ok := reply.([]any)
	return ok && len(fields) == 4 && fields[0] == int64(CodeHeld) && fields[3] == int64(1)
}

func decodeHolder(name string, reply any) (driver.Holder, error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) != 3 {
		return driver.Holder{}, ErrReply(reply)
	}
	raw, ok1 := fields[0].(string)
	ms, ok2 := fields[1].(int64)
	waiters, ok3 := fields[2].(int64)
	if !ok1 || !ok2 || !ok3 {
		return driver.Holder{}, fmt.Errorf("inspect %q: %w", name, ErrReply(reply))
	}
	return parseHolder(name, raw, ms, waiters), nil
}
