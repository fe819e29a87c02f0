-- Begins, checks and ends the quarantine of one node. KEYS: the marker key. ARGV: the marker that
-- admits the node ("RUN-ID MAX-TTL"), the episode watched, a random text, the length of a
-- quarantine, and the lowest and the highest clock of the other nodes. The episode watched is one
-- that the caller has watched for long enough ("" for none, "*" for an operator who knows that no
-- lock is held). Clocks are left out if the caller does not know them. Times are in microseconds.
-- Replies {marker, episode, left}. The episode is "" once the node is admitted. left is the
-- remaining time of the episode by the clocks, or -1 if the other nodes' clocks are not known.
--
-- An episode is one period of quarantine. The first caller that finds a wrong marker begins an
-- episode. The episode's id has the run id, so that data of an earlier run is not mistaken for it.
-- An episode ends when the marker is written. So a caller that missed the end finds another episode
-- after the next loss of data.
--
-- The node stores when the episode began, by its own clock and by the latest of the other clocks.
-- So every process gets the same answer, even a process that runs only for a short time. The
-- quarantine ends only when both clocks have advanced for long enough. So one clock that jumps, as
-- a machine's clock may after its start, does not end it.
local control, wanted, watched, nonce, lasts = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local earliest, latest = tonumber(ARGV[5]), tonumber(ARGV[6])
local state = redis.call('HMGET', control, 'marker', 'episode', 'since', 'others')
local marker, episode = state[1] or '', state[2] or ''
local since, others = tonumber(state[3] or 0), tonumber(state[4])
if marker == wanted then return {marker, '', 0} end
local run = string.match(wanted, '^%S+ ')
if watched ~= '*' and string.sub(marker, 1, #run) == run then
  return {marker, '', 0}
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local same = string.sub(episode, 1, #run) == run and since <= now
local left = -1
if same and others and earliest then left = math.max(0, lasts - (now - since), lasts - (earliest - others)) end
if watched == '*' or watched == episode and watched ~= '' or left == 0 then
  redis.call('HSET', control, 'marker', wanted)
  redis.call('HDEL', control, 'episode', 'since', 'others')
  return {wanted, '', 0}
end
if not same then
  episode, others = run .. nonce, nil
  redis.call('HSET', control, 'episode', episode, 'since', now)
  redis.call('HDEL', control, 'others')
end
if latest and not others then redis.call('HSET', control, 'others', latest) end
return {marker, episode, left}
