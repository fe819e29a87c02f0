-- Fails if a command that the scripts use is denied. KEYS has a key that no
-- lock has. ARGV after the head: channel.
use_all(KEYS[1], ARGV[5])
return 1
