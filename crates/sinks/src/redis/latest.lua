-- Keeps the latest snapshot of each token. One call for many.
-- KEYS: one a snapshot, then the stream's if there is one.
-- ARGV: how many snapshots; TIE_MS; the stream's length, 0 without one; whether the stream has the books; the channel on
--       which changed keys are told, '' for none; then for each snapshot: what the stream and the channel call it, its
--       hash, timestamp and updated_at, how many further fields it has, and those with their values.
-- Gives a digit for each: 1 written, 0 the same is there, 2 a later one is there, 3 the key holds no hash.
local count, tie_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local stream_len, stream_books, channel = tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]

-- Lua compares texts by the server's locale; digits of equal number are safe, anything else goes byte by byte.
local function is_greater(a, b)
  for at = 1, math.min(#a, #b) do
    local x, y = string.byte(a, at), string.byte(b, at)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local function is_later(hash, timestamp, updated_at, held)
  local new, old = string.match(timestamp, '^0*(%d+)$'), string.match(held[2] or '', '^0*(%d+)$')
  if new and old and new ~= old then
    if #new ~= #old then return #new > #old end
    return new > old
  end
  if not new ~= not old then return new ~= nil end
  local apart = (tonumber(updated_at) or 0) - (tonumber(held[3] or '') or 0)
  return apart > tie_ms or (apart >= -tie_ms and is_greater(hash, held[1]))
end

local said, at = {}, 6
for number = 1, count do
  local key = KEYS[number]
  local name, hash, timestamp, updated_at = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local first = at + 5
  local last = at + 4 + 2 * tonumber(ARGV[at + 4])
  at = last + 1
  local held = redis.pcall('HMGET', key, 'hash', 'timestamp', 'updated_at')
  if held.err then
    said[number] = '3'
  elseif held[1] and held[1] == hash then
    said[number] = '0'
  elseif held[1] and not is_later(hash, timestamp, updated_at, held) then
    said[number] = '2'
  else
    redis.call('HSET', key, 'hash', hash, 'timestamp', timestamp, 'updated_at', updated_at, unpack(ARGV, first, last))
    if stream_len > 0 then
      local stream = KEYS[count + 1]
      if stream_books then
        redis.call('XADD', stream, 'MAXLEN', '~', stream_len, '*', 'key', name, 'hash', hash, 'timestamp', timestamp,
          'updated_at', updated_at, unpack(ARGV, first, last))
      else
        redis.call('XADD', stream, 'MAXLEN', '~', stream_len, '*', 'key', name, 'hash', hash, 'timestamp', timestamp,
          'updated_at', updated_at)
      end
    end
    if channel ~= '' then redis.call('PUBLISH', channel, name) end
    said[number] = '1'
  end
end
return table.concat(said)
