-- Finds out whether every command may be used. KEYS has a key that no lock has.
-- ARGV after the head: channel.
use_all(KEYS[1], ARGV[5])
return 1
