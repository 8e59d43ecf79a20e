-- A session's event log in Redis, each call in one step that nobody interrupts.
-- KEYS: the log's head (a hash) and its entries (a stream). ARGV: what to do, how many seconds the
-- keys live on, the channel on which new entries are told and who tells, and what is done with it.
-- An entry is `seq-0` with `p`, the position of the store's row that it is or follows; `r`, 1 where
-- it is that row; and `e`, the event. The head has the epoch and the run of this server that it
-- began under, `seq` and `pos` of the end, `base` (the position before its first row), and `call`,
-- the newest model call as "turn.step.attempt" with `told`, how many pieces of it are here.

local does, ttl, channel, sender = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local head, entries = KEYS[1], KEYS[2]
local run = string.match(redis.call("INFO", "server"), "run_id:(%x+)")

local names = {"epoch", "run", "seq", "pos", "base", "call", "told", "open", "done"}
local values = redis.call("HMGET", head, unpack(names))
local log = {}
for i, name in ipairs(names) do
  log[name] = values[i] or nil
end
for _, name in ipairs({"epoch", "seq", "pos", "base", "told", "done"}) do
  log[name] = tonumber(log[name] or 0)
end

if log.seq > 0 and redis.call("EXISTS", entries) == 0 then
  -- A server that is short of memory may drop one key of the two.
  log.run = nil
end

local function number(i)
  return tonumber(ARGV[i])
end

local new = false

local function append(position, row, event)
  new = true
  log.seq = log.seq + 1
  redis.call("XADD", entries, log.seq .. "-0", "p", position, "r", row, "e", event)
end

local function keep()
  redis.call("HSET", head, "epoch", log.epoch, "run", log.run, "seq", log.seq, "pos", log.pos,
    "base", log.base, "call", log.call or "", "told", log.told, "open", log.open or "0",
    "done", log.done)
  redis.call("EXPIRE", head, ttl)
  redis.call("EXPIRE", entries, ttl)
  if new then
    redis.call("PUBLISH", channel, sender)
  end
end

-- Whether "turn.step.attempt" `one` comes before `other`.
local function before(one, other)
  local t1, s1, a1 = string.match(one, "(%d+)%.(%d+)%.(%d+)")
  local t2, s2, a2 = string.match(other, "(%d+)%.(%d+)%.(%d+)")
  t1, s1, a1, t2, s2, a2 = t1 + 0, s1 + 0, a1 + 0, t2 + 0, s2 + 0, a2 + 0
  if t1 ~= t2 then return t1 < t2 end
  if s1 ~= s2 then return s1 < s2 end
  return a1 < a2
end

if does == "begin" then
  local epoch = number(5)
  if ARGV[6] ~= run then
    return {"lost", log.epoch}
  end
  if log.run == run and log.epoch >= epoch then
    return {"ok", log.epoch}
  end
  redis.call("DEL", head, entries)
  log = {epoch = epoch, run = run, seq = 0, pos = number(7), base = number(7), told = 0, done = 0}
  for i = 8, #ARGV do
    append(log.base, 0, ARGV[i])
  end
  keep()
  return {"ok", epoch}
end

if log.run ~= run then
  return {"lost", run}
end

if does == "append" then
  -- epoch, most entries, then for each row: position, kind, call, ordinal, event.
  -- Kinds: s(tarted), x (a text that is told where the call's pieces are not here), d(elta),
  -- f(inished), t(urn finished), and others.
  local epoch, most = number(5), number(6)
  if epoch ~= log.epoch then
    return {"epoch", log.epoch, run}
  end
  local before_seq, given, trims = log.seq, false, false
  local answer = "ok"
  for i = 7, #ARGV, 5 do
    local position, kind, call = number(i), ARGV[i + 1], ARGV[i + 2]
    local ordinal, event = number(i + 3), ARGV[i + 4]
    if position > log.pos + 1 then
      answer = "behind"
      break
    elseif position == log.pos + 1 then
      if kind == "x" then
        -- Those of one call follow each other: the first decides for all.
        if log.told == 0 then
          given = true
          if event ~= "" then append(log.pos, 0, event) end
        end
      elseif kind == "d" and log.call == call and log.open == "1" then
        if ordinal == log.told + 1 then
          append(position, 1, event)
          log.told = ordinal
        end
        -- What is here already is skipped; what others should precede comes as a text.
        log.pos = position
      elseif kind == "f" and log.told == 0 and not given then
        answer = "text"
        break
      else
        append(position, 1, event)
        log.pos = position
        if kind == "s" then
          log.call, log.told, log.open = call, 0, "1"
        elseif kind == "f" then
          log.told, log.open, given = 0, "0", false
        elseif kind == "t" then
          log.open, trims = "0", true
        end
      end
    end
  end
  if trims then
    -- The newest finished turn stays whole, whoever still reads it.
    if log.seq > most and log.done > 0 then
      redis.call("XTRIM", entries, "MINID", math.min(log.done + 1, log.seq - most + 1) .. "-0")
    end
    log.done = log.seq
  end
  keep()
  return {answer, log.pos, log.seq - before_seq}

elseif does == "deltas" then
  -- call, the first one's ordinal, then the events.
  local call, ordinal = ARGV[5], number(6)
  if not log.call or log.call == "" or before(log.call, call) then
    return {"behind"}
  end
  if log.call ~= call or log.open ~= "1" then
    return {"fenced"}
  end
  if ordinal > log.told + 1 then
    return {"hole", log.told}
  end
  for i = 7, #ARGV do
    if ordinal > log.told then
      append(log.pos, 0, ARGV[i])
      log.told = ordinal
    end
    ordinal = ordinal + 1
  end
  keep()
  return {"ok", log.told}

elseif does == "standing" then
  return {"ok", log.epoch, log.pos, log.seq}

elseif does == "read" then
  -- kind of cursor, its epoch, its number, how many entries.
  local kind, epoch, from, most = ARGV[5], number(6), number(7), number(8)
  if kind == "seq" and epoch < log.epoch then
    return {"old", log.epoch, log.base}
  end
  if kind == "seq" and epoch > log.epoch then
    return {"ahead", log.epoch, log.seq}
  end
  local first = redis.call("XRANGE", entries, "-", "+", "COUNT", 1)[1]
  first = first and tonumber(string.match(first[1], "%d+")) or log.seq + 1
  if kind == "position" then
    if from < log.base then
      return {"store", log.epoch, log.base}
    end
    -- The last entry that is the row of that position, or of one before it.
    local low, high = first, log.seq + 1
    while low < high do
      local middle = math.floor((low + high) / 2)
      local entry = redis.call("XRANGE", entries, middle .. "-0", middle .. "-0")[1][2]
      if tonumber(entry[2]) > from or (tonumber(entry[2]) == from and entry[4] == "0") then
        high = middle
      else
        low = middle + 1
      end
    end
    if low == first and first > 1 then
      -- What was trimmed here is in the store.
      local entry = redis.call("XRANGE", entries, first .. "-0", first .. "-0")[1][2]
      local upto = tonumber(entry[2]) - tonumber(entry[4])
      if from < upto then
        return {"store", log.epoch, upto}
      end
    end
    from = low - 1
  end
  local found = redis.call("XRANGE", entries, (from + 1) .. "-0", "+", "COUNT", most)
  local answer = {"ok", log.epoch, log.pos, log.seq, first, from}
  for _, entry in ipairs(found) do
    answer[#answer + 1] = tonumber(string.match(entry[1], "%d+"))
    answer[#answer + 1] = tonumber(entry[2][2])
    answer[#answer + 1] = entry[2][6]
  end
  return answer
end
