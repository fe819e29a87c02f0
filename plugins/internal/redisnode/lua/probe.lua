-- Shows whether the server would let a lock be taken and a waiter be woken,
-- and changes nothing. ARGV after the head: channel.
call('TIME')
call('HDEL', control, 'probe')
call('PUBLISH', side .. 'i:' .. ARGV[5], '')
return 1
