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
	CodeTurn // of redlock alone
	CodeRefused
)

// Refusal is an error of the server inside a script, which went on.
type Refusal string

func (e Refusal) Error() string { return string(e) }

// RedisError makes it a [goredis.Error].
func (Refusal) RedisError() {}

// Fields are a reply that has several.
type Fields []any

// FieldsOf returns reply, empty when it is something else.
func FieldsOf(reply any) Fields {
	fields, _ := reply.([]any)
	return fields
}

// Number is field i, -1 when there is none or that is no number.
func (f Fields) Number(i int) int64 {
	if i < len(f) {
		if n, ok := f[i].(int64); ok {
			return n
		}
	}
	return -1
}

// Text is field i, "" when there is none or that is no text.
func (f Fields) Text(i int) (s string) {
	if i < len(f) {
		s, _ = f[i].(string)
	}
	return s
}

// decode reads the reply to one operation on name.
func decode(name string, reply any) driver.Result {
	if token, ok := reply.(int64); ok {
		return driver.Result{Token: uint64(token)}
	}
	switch f := FieldsOf(reply); f.Number(0) {
	case CodeHeld:
		return driver.Result{Err: &driver.HeldError{Holder: refusing(name, f)}}
	case CodeNotHeld:
		return driver.Result{Err: &driver.NotHeldError{Holder: refusing(name, f)}}
	case CodeWithdrawn:
		return driver.Result{Err: driver.ErrWithdrawn}
	case CodeRefused:
		return driver.Result{Err: Refusal(f.Text(1))}
	}
	return driver.Result{Err: ErrReply(reply)}
}

// refusing is the holder that a refusal names.
func refusing(name string, f Fields) driver.Holder {
	h := parseHolder(name, f.Text(1), f.Number(2), -1)
	// Only the head of the value came with the refusal, and a part of a
	// published value is worse than none.
	h.Value = nil
	return h
}

// queued reports whether a refused acquire found its owner in the queue.
func queued(reply any) bool {
	f := FieldsOf(reply)
	return f.Number(0) == CodeHeld && f.Number(3) == 1
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
