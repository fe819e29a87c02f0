-- Looks after the quarantine of one node. KEYS: the marker key. ARGV: the marker that
-- admits it ("RUN-ID MAX-TTL-MS"), the episode that the caller has watched for
-- long enough ("" for none, "*" for an operator who knows that nothing is
-- held), and a random text. Replies {marker, episode}, the episode "" once the
-- node is admitted.
--
-- An episode is one stretch of quarantine. Whoever finds a wrong marker begins
-- one. It names the run, so that one that comes back with old data is not
-- taken for this one, and ends with the marker, so that a caller who missed
-- that and the next loss of data finds another.
local control, wanted, watched, nonce = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local state = redis.call('HMGET', control, 'marker', 'episode')
local marker, episode = state[1] or '', state[2] or ''
if marker == wanted then return {marker, ''} end
local run = string.match(wanted, '^%S+ ')
if watched ~= '*' and string.sub(marker, 1, #run) == run then
  return {marker, ''}
end
if watched == '*' or watched == episode and watched ~= '' then
  redis.call('HSET', control, 'marker', wanted)
  redis.call('HDEL', control, 'episode')
  return {wanted, ''}
end
if string.sub(episode, 1, #run) ~= run then
  episode = run .. nonce
  redis.call('HSET', control, 'episode', episode)
end
return {marker, episode}
