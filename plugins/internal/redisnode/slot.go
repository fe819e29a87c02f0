package redisnode

import (
	"strconv"
	"sync"
)

// slots is the number of hash slots of a Cluster.
const slots = 16384

// slot is the hash slot of a key without braces: the CRC-16 (XMODEM) of the
// whole key, as the Redis Cluster specification has it.
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

// slotTag returns a short string whose hash slot is s.
func slotTag(s uint16) string { return slotTags()[s] }

// slotTags has one for each slot: the first numbers in base 36 that hash to
// it. Finding all takes some ten milliseconds, once, and only in Cluster.
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
