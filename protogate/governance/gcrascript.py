"""The algorithm of L{protogate.governance.gcra} as one step of Redis, by its clock: gateways need not agree on one."""

from __future__ import annotations

from typing import Final

from protogate.governance.redis import Script

GCRA: Final = Script(
    "gcra",
    """
-- KEYS[1]: a hash of `full` (when the bucket is full again, in microseconds) and `each` (microseconds a unit).
-- ARGV: microseconds a unit, burst, units wanted, units that are of use at least.
-- Answers units given, microseconds until there is what was of use, units left.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local each, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local wanted, least = tonumber(ARGV[3]), math.min(tonumber(ARGV[4]), tonumber(ARGV[2]))
local kept = redis.call('HMGET', KEYS[1], 'full', 'each')
local used = 0
if kept[1] then
  -- What was used stays used when the rate is another one by now.
  used = math.min(math.max(tonumber(kept[1]) - now, 0) / tonumber(kept[2]), burst)
end
local left = burst - used
local given = math.min(wanted, math.floor(left + 0.0001))
if given < least then
  return {0, math.ceil((least - left) * each), math.floor(left)}
end
left = math.max(left - given, 0)
local ahead = (burst - left) * each
redis.call('HSET', KEYS[1], 'full', string.format('%.2f', now + ahead), 'each', string.format('%.9g', each))
redis.call('PEXPIRE', KEYS[1], math.ceil(ahead / 1000) + 1000)
local wait = 0
if given < wanted then wait = math.ceil((1 - (left - math.floor(left))) * each) end
return {given, wait, math.floor(left)}
""",
)
"""See L{protogate.governance.leases.Leases} for what it answers.  Redis 5 or later."""
