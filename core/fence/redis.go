package fence

// RedisSet is a Lua script that sets KEYS[1] to ARGV[2] if the token ARGV[1]
// is at least as high as the one kept in KEYS[2], which it then raises. It
// answers 1 when it wrote and 0 when the token is stale or zero. The two keys
// must be in one slot of a cluster ("{order:7}" and "{order:7}:token").
//
// Tokens are compared as decimal text, first by length: Lua's numbers are
// exact up to 2^53 only.
const RedisSet = `
local token, seen = ARGV[1], redis.call('GET', KEYS[2]) or '0'
if token == '0' or #token < #seen or (#token == #seen and token < seen) then
  return 0
end
redis.call('SET', KEYS[2], token)
redis.call('SET', KEYS[1], ARGV[2])
return 1
`
