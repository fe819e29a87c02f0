package redisnode

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// The value of a lock key has this form:
//
//	OWNER " " TOKEN " " LENGTH-OF-LABEL ":" LABEL VALUE
//
// One comparison of OWNER and TOKEN shows whether a lease still exists. All four parts are written
// and deleted in one step. If the store granted the lease to a waiter that has not used it yet, a
// "+" stands in place of the second space.

// LeaseID returns the beginning of a lease's value: its owner and token.
func LeaseID(owner string, token uint64) string {
	return owner + " " + strconv.FormatUint(token, 10) + " "
}

// ValueTail returns the rest of a lease's value: its label and published value.
func ValueTail(label string, value []byte) string {
	var b strings.Builder
	b.Grow(len(label) + len(value) + 6)
	b.WriteString(strconv.Itoa(len(label)))
	b.WriteByte(':')
	b.WriteString(label)
	b.Write(value)
	return b.String()
}

// parseHolder reads the value of a lock key (raw). If the value does not have the form above,
// another program holds the lock. The result's Owner is then a short, printable form of the value,
// and its Token is 0. The parameter ms is the reply to PTTL. If it is -2, the key does not exist.
func parseHolder(name, raw string, ms, waiters int64) driver.Holder {
	return parse(name, raw, ms, waiters, 1)
}

// ParseVote reads the value that one redlock node has for the lock called name. The holder's token
// is 0 until the node has got the token of the grant. The parameter ms is the reply to PTTL.
func ParseVote(name, raw string, ms int64) driver.Holder { return parse(name, raw, ms, -1, 0) }

// parse reads a value whose token is at least the lowest token.
func parse(name, raw string, ms, waiters int64, lowest uint64) driver.Holder {
	if ms == -2 {
		return driver.Holder{}
	}
	h := driver.Holder{Name: name, TTL: ttl(ms), Waiters: int(waiters)}
	if !parseValue(raw, lowest, &h) {
		h.Owner = printable(raw)
	}
	return h
}

// ttl turns the reply to PTTL into a Holder's TTL. A reply of zero means less than a millisecond. A
// reply above 292 years, the longest time.Duration, counts as no end.
func ttl(ms int64) time.Duration {
	if ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
		return -1
	}
	return time.Duration(max(ms, 1)) * time.Millisecond
}

func parseValue(raw string, lowest uint64, h *driver.Holder) bool {
	owner, rest, ok := strings.Cut(raw, " ")
	if !ok || !isOwner(owner) {
		return false
	}
	end := strings.IndexAny(rest, " +")
	if end < 1 || rest[0] == '0' && end > 1 {
		return false
	}
	token, err := strconv.ParseUint(rest[:end], 10, 64)
	if err != nil || token < lowest {
		return false
	}
	rest = rest[end+1:]
	number, rest, ok := strings.Cut(rest, ":")
	length, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil || int(length) > len(rest) || strconv.FormatUint(length, 10) != number {
		return false
	}
	h.Owner, h.Token, h.Label = owner, token, rest[:length]
	if value := rest[length:]; value != "" {
		h.Value = []byte(value)
	}
	return true
}

const ownerCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func isOwner(s string) bool {
	return s != "" && len(s) <= 64 && strings.TrimLeft(s, ownerCharacters) == ""
}

func printable(raw string) string {
	const most = 64
	var b strings.Builder
	for _, r := range raw {
		if b.Len() >= most {
			b.WriteString("...")
			break
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return cmp.Or(b.String(), "(empty)")
}

// If a script refuses an operation, its reply starts with one of these codes; see lua/head.lua.
const (
	CodeHeld = iota + 1
	CodeNotHeld
	CodeWithdrawn
	CodeTurn // only redlock uses it
	CodeRefused
	CodeQuarantined // only redlock uses it
)

// Refusal is the error of a command inside a script. The script continued after the error.
type Refusal string

func (e Refusal) Error() string { return string(e) }

// RedisError makes Refusal a [goredis.Error].
func (Refusal) RedisError() {}

// Fields is a reply that is an array.
type Fields []any

// FieldsOf returns reply as Fields, or no fields when reply is not an array.
func FieldsOf(reply any) Fields {
	fields, _ := reply.([]any)
	return fields
}

// Number returns the field with index i, or -1 if there is no such field or it is no number.
func (f Fields) Number(i int) int64 {
	if i < len(f) {
		if n, ok := f[i].(int64); ok {
			return n
		}
	}
	return -1
}

// Text returns the field with index i, or "" if it does not exist or is not text.
func (f Fields) Text(i int) (s string) {
	if i < len(f) {
		s, _ = f[i].(string)
	}
	return s
}

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

func refusing(name string, f Fields) driver.Holder {
	h := parseHolder(name, f.Text(1), f.Number(2), -1)
	// The refusal has only the beginning of the key's value, so the published
	// value may be cut off.
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
