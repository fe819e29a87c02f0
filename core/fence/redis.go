package fence

// RedisSet is a Lua script that sets KEYS[1] to ARGV[2] if the token ARGV[1] is at least as high as
// the token in KEYS[2]. In that case, the script also sets KEYS[2] to ARGV[1]. The script returns 1
// if it wrote, and 0 if the token is stale or zero. In a cluster, both keys must be in the same
// slot ("{order:7}" and "{order:7}:token").
//
// The script compares tokens as decimal text, first by length, because
// Lua's numbers are exact only up to 2^53.
const RedisSet = `
local token, seen = ARGV[1], redis.call('GET', KEYS[2]) or '0'
if token == '0' or #token < #seen or (#token == #seen and token < seen) then
  return 0
end
redis.call('SET', KEYS[2], token)
redis.call('SET', KEYS[1], ARGV[2])
return 1
`
