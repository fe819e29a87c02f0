package redisnode

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
)

// Keys makes Redis keys from lock names, for one prefix.
//
// A lock's key is usually the prefix and the lock's name. If the name starts with "~" or contains
// braces, the key is the prefix, "~n:" and the name with "{", "}" and "%" written as %7B, %7D and
// %25. So a lock key never has braces, but all other keys (side keys, such as a queue's key) do. A
// lock key never equals a side key, even if their prefixes differ (rule K6). A side key of one lock
// has the lock's key between its braces, and so is in the lock's Cluster slot.
type Keys struct {
	prefix  string
	cluster bool
}

// NewKeys returns the keys of prefix. If prefix has braces, it returns an error that wraps
// driver.ErrConfig, because braces decide a key's Cluster slot. If cluster is true, each slot has
// its own control string, set of withdrawn owners, and signs of life.
func NewKeys(prefix string, cluster bool) (Keys, error) {
	if strings.ContainsAny(prefix, "{}") {
		return Keys{}, fmt.Errorf("%w: prefix has braces, which would decide about the Cluster slot", driver.ErrConfig)
	}
	return Keys{prefix: prefix, cluster: cluster}, nil
}

const encodedMark = "~n:"

var (
	encoder = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")
	decoder = strings.NewReplacer("%7B", "{", "%7D", "}", "%25", "%")
)

// Lock returns the key of the lock called name.
func (k Keys) Lock(name string) string {
	if !strings.HasPrefix(name, "~") && !strings.ContainsAny(name, "{}") {
		return k.prefix + name
	}
	return k.prefix + encodedMark + encoder.Replace(name)
}

// Name returns the name of the lock that has the given key. The result is false if no lock has that
// key.
func (k Keys) Name(key string) (string, bool) {
	name, ours := strings.CutPrefix(key, k.prefix)
	if !ours || name == "" {
		return "", false
	}
	if rest, ok := strings.CutPrefix(name, encodedMark); ok {
		name = decoder.Replace(rest)
	}
	return name, k.Lock(name) == key
}

// pattern is a SCAN pattern that matches every lock key of the prefix and perhaps other keys.
func (k Keys) pattern() string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(k.prefix) + "*"
}

func (k Keys) changeChannel(name string) string { return k.side() + "o:" + k.Lock(name) }

// Nobody returns a key of the prefix that belongs to no lock.
func (k Keys) Nobody() string { return k.prefix + encodedMark }

func (k Keys) side() string                  { return k.prefix + "~" }
func (k Keys) control(lock string) string    { return k.side() + "s:{" + k.tag(lock) + "}" }
func (k Keys) tombstones(lock string) string { return k.side() + "b:{" + k.tag(lock) + "}" }

// Head returns the first arguments of every script; see lua/head.lua. The parameter lock is any
// lock key in the script's Cluster slot. Without a Cluster, the parameter has no effect.
func (k Keys) Head(lock string) []any {
	cluster := "0"
	if k.cluster {
		cluster = "1"
	}
	return []any{k.control(lock), k.tombstones(lock), k.side(), cluster}
}

// tag returns the text between the braces of a side key. In a Cluster, the text puts the side key
// into the lock key's slot. Without a Cluster it is empty, so all locks share the side key.
func (k Keys) tag(lock string) string {
	if !k.cluster {
		return ""
	}
	return slotTags()[slot(lock)]
}

const slots = 16384

// slot returns the hash slot of a key without braces, as the Redis Cluster specification defines
// it: the CRC-16 (XMODEM) of the key, modulo the number of slots.
func slot(key string) uint16 {
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}

// slotTags has a tag (text in braces) for each slot: the first number, in base 36, whose hash is
// that slot. Each process that uses a Cluster computes the tags once, in about 10 ms.
var slotTags = sync.OnceValue(func() *[slots]string {
	var tags [slots]string
	for i, found := int64(0), 0; found < slots; i++ {
		tag := strconv.FormatInt(i, 36)
		if s := slot(tag); tags[s] == "" {
			tags[s] = tag
			found++
		}
	}
	return &tags
})
