-- The ordinary case of vote.lua, which stands in front of this as the function
-- slow: acquires, renewals and releases while nobody waits, observes or was
-- withdrawn, with tokens that this node has yet to see. It replies the same.
-- Making the functions of the general case costs more than all of this.
--
-- ARGV[4] and ARGV[5] are the lowest and the highest token that acquires in
-- this batch guess, 0 for none. They rise in the order of the requests. ""
-- tells that the batch has other requests in it. ARGV[6] is the last index of
-- the texts of all other requests, "" when they differ: to write out a number
-- costs more than to read it.
local lowest = tonumber(ARGV[4])
if not lowest then return slow() end
local call, try = redis.call, redis.pcall
local state = call('HMGET', KEYS[1], 'token', 'barred', 'queued', 'observed')
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[3] ~= '' and call('HGET', KEYS[3], 'marker') ~= ARGV[3]
  or state[2] and tonumber(state[2]) > now
  or state[3] and tonumber(state[3]) > now
  or state[4] and tonumber(state[4]) > now
  or lowest > 0 and (lowest <= now or state[1] and lowest <= tonumber(state[1])) then
  return slow()
end

local answers, arg, minted, index = {}, 7, false, ARGV[6]
for n = 4, #KEYS do
  local key, kind, text = KEYS[n], ARGV[arg], ARGV[arg + 2]
  local answer = 1
  if kind == 'a' then
    if call('SET', key, text, 'NX', 'PX', ARGV[arg + 1]) then
      minted = lowest > 0
    else
      answer = {1, try('GETRANGE', key, '0', '511'), call('PTTL', key)}
    end
  elseif try('GETRANGE', key, '0', index == '' and #text - 1 or index) == text then
    if kind == 'r' then
      call('PEXPIRE', key, ARGV[arg + 1])
    else
      call('DEL', key)
    end
  elseif kind ~= 'u' then
    local unsettled = string.gsub(text, ' %d+ $', ' 0 ')
    if try('GETRANGE', key, '0', #unsettled - 1) ~= unsettled then
      answer = {2, try('GETRANGE', key, '0', '511'), call('PTTL', key)}
    elseif kind == 'r' then
      call('PEXPIRE', key, ARGV[arg + 1])
    else
      call('DEL', key)
    end
  end
  if type(answer) == 'table' and type(answer[2]) == 'table' then
    answer[2] = '(' .. call('TYPE', key).ok .. ')'
  end
  answers[n - 3] = answer
  arg = arg + 3
end
if minted then call('HSET', KEYS[1], 'token', ARGV[5]) end
return {now, 1, answers}
