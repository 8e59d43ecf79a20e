-- The governor's rules inside of Redis: what `rules.py` says, in one step that nobody interrupts.
-- KEYS[1] is the prefix of all keys. ARGV: what to do, the time or "" for the server's own, the
-- numbers of `rules.py`, and what is done with it.
-- A waiter stands in sorted sets by its tag: `rate`, `busy` by model, `open` by model. One that
-- is late is taken out of them, and keeps its record until it is gone.

local does, given, rules = ARGV[1], ARGV[2], cjson.decode(ARGV[3])
local input = cjson.decode(ARGV[4])
local prefix = KEYS[1]

local now
if given ~= "" then
  now = tonumber(given)
else
  local time = redis.call("TIME")
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function text(number)
  return string.format("%.17g", number)
end

local function name(...)
  return prefix .. table.concat({...}, "\1")
end

local function number(value, default)
  return tonumber(value or default) or default
end

local touched = {}

local function touch(key)
  touched[key] = true
  return key
end

-- A provider key.

local key, book = nil, nil

local function open_book(call)
  key = call.key
  book = {}
  local flat = redis.call("HGETALL", name("key", key))
  for i = 1, #flat, 2 do
    book[flat[i]] = flat[i + 1]
  end
  book.provider = call.provider
end

local function keep_book()
  local flat = {}
  for field, value in pairs(book) do
    flat[#flat + 1] = field
    flat[#flat + 1] = type(value) == "number" and text(value) or value
  end
  redis.call("HSET", touch(name("key", key)), unpack(flat))
  redis.call("SADD", touch(name("keys")), key)
end

local function learnt()
  if not book.rate or now - number(book.refused_at, 0) > rules.FORGET_SECONDS then
    return nil
  end
  return number(book.rate, 0) * (1 + (now - number(book.refused_at, 0)) / rules.DOUBLING_SECONDS)
end

local function known_pace()
  local pace = number(book.pace, 0)
  if pace > 0 and now - number(book.pace_at, 0) <= rules.PACE_SECONDS then
    return pace
  end
end

local function lately()
  return number(book.seen, 0) * math.exp((number(book.pace_at, 0) - now) / rules.SEEN_SECONDS)
end

local function keep_pace(pace, seen)
  book.pace, book.pace_at, book.seen = pace, now, seen
end

local function told_rates(ample)
  local rates = {}
  for _, counts in ipairs({"calls", "tokens"}) do
    local low = number(book["told_low:" .. counts], 0) == 1
    if number(book["told_until:" .. counts], 0) > now and (low or ample) then
      rates[#rates + 1] = {
        name = "told_" .. counts, counts = counts, capacity = number(book["told_most:" .. counts], 0),
        per_second = number(book["told_gain:" .. counts], 0)}
    end
  end
  return rates
end

local function all_rates(call, limits)
  local rates, counted = {}, false
  for _, given in ipairs({limits.rates, told_rates(call.crowded)}) do
    for _, rate in ipairs(given) do
      rates[#rates + 1] = rate
      counted = counted or rate.counts == "calls"
    end
  end
  local found = learnt()
  if found then
    local capacity = math.max(2, rules.LEARNT_SECONDS * found)
    rates[#rates + 1] =
      {name = "learnt", counts = "calls", capacity = capacity, per_second = found}
    keep_pace(found, lately())
  elseif call.crowded and not counted then
    local pace = known_pace() or rules.CAREFUL_RATE
    rates[#rates + 1] = {
      name = "careful", counts = "calls", capacity = math.max(2, rules.LEARNT_SECONDS * pace),
      per_second = pace, growth = rules.CAREFUL_GROWTH}
  end
  return rates
end

local function level(rate)
  local full = rate.counts == "tokens" and rate.capacity or 1
  local held = number(book["level:" .. rate.name], full)
  local at = number(book["at:" .. rate.name], now)
  return math.min(rate.capacity, held + math.max(0, now - at) * rate.per_second)
end

local function keep_level(rate, held)
  book["level:" .. rate.name] = held
  book["at:" .. rate.name] = now
end

local function is_growing(rate)
  return (rate.growth or 0) > 0
end

local function quicken(rate, held)
  local seen = lately() + 1
  local pace = known_pace() or rules.CAREFUL_RATE
  if is_growing(rate) and held < 2 then
    pace = pace + rules.CAREFUL_GROWTH
  elseif pace < rules.CALM_MAX * seen then
    pace = pace + (is_growing(rate) and rules.CALM_GROWTH or rules.CAREFUL_GROWTH)
  end
  keep_pace(pace, seen)
end

local function hear(allowance)
  local counts, seconds = allowance.counts, allowance.reset_seconds
  local used = allowance.limit - allowance.remaining
  if used <= 0 or seconds <= 0 then
    return
  end
  local held = allowance.remaining
  for _, rate in ipairs(told_rates(true)) do
    if rate.counts == counts then
      held = math.min(held, level(rate))
    end
  end
  book["told_most:" .. counts] = allowance.limit
  book["told_gain:" .. counts] = rules.TOLD_SHARE * used / seconds
  book["told_until:" .. counts] = now + seconds
  book["told_low:" .. counts] = allowance.is_ample and 0 or 1
  keep_level({name = "told_" .. counts}, held)
end

-- Lines.

local function member(waiter)
  return string.format("%015d|%s", waiter.number, waiter.id)
end

local function lines_of(waiter)
  if waiter.line == "open" then
    return {name("open", key, waiter.model)}
  elseif waiter.line == "busy" then
    return {name("busy", key, waiter.model)}
  end
  return {name("rate", key), name("busy", key, waiter.model)}
end

local function stored(id)
  local found = redis.call("HGET", name("waiters", key), id)
  return found and cjson.decode(found) or nil
end

local function leave_lines(waiter)
  for _, line in ipairs(lines_of(waiter)) do
    redis.call("ZREM", line, member(waiter))
  end
  redis.call("ZREM", name("present", key), waiter.id)
end

local function drop_waiter(id)
  local waiter = stored(id)
  if waiter then
    leave_lines(waiter)
    redis.call("HDEL", name("waiters", key), id)
    redis.call("ZREM", name("due", key), id)
  end
end

local function keep_waiter(waiter)
  drop_waiter(waiter.id)
  local numbers = {"tag", "since", "due"}
  local row = {id = waiter.id, model = waiter.model, line = waiter.line, number = waiter.number}
  for _, field in ipairs(numbers) do
    row[field] = text(waiter[field])
  end
  redis.call("HSET", touch(name("waiters", key)), waiter.id, cjson.encode(row))
  redis.call("ZADD", touch(name("due", key)), text(waiter.due), waiter.id)
  redis.call("ZADD", touch(name("present", key)), text(waiter.due), waiter.id)
  for _, line in ipairs(lines_of(waiter)) do
    redis.call("ZADD", touch(line), text(waiter.tag), member(waiter))
  end
end

local function tidy()
  local gone = redis.call(
    "ZRANGEBYSCORE", name("due", key), "-inf", "(" .. text(now - rules.GONE_SECONDS))
  for _, id in ipairs(gone) do
    drop_waiter(id)
  end
  local late = redis.call(
    "ZRANGEBYSCORE", name("present", key), "-inf", text(now))
  for _, id in ipairs(late) do
    local waiter = stored(id)
    if waiter then
      leave_lines(waiter)
    end
  end
end

local function ahead(waiter, line)
  local place = member(waiter)
  if redis.call("ZSCORE", line, place) then
    return redis.call("ZRANK", line, place)
  end
  redis.call("ZADD", line, text(waiter.tag), place)
  local rank = redis.call("ZRANK", line, place)
  redis.call("ZREM", line, place)
  return rank
end

local function arrive(call)
  local arrivals = number(book.arrivals, 0) + 1
  book.arrivals = arrivals
  local tag = number(book.virtual, 0)
  for _, line in ipairs(call.lines) do
    tag = math.max(tag, number(redis.call("HGET", name("last", key), line), 0))
  end
  tag = tag + 1
  redis.call("HSET", touch(name("last", key)), call.lines[#call.lines], text(tag))
  return {id = call.id, model = call.model, tag = tag, number = arrivals, since = now, line = "rate"}
end

local function wait(waiter, cause, seconds, before, failing)
  seconds = math.max(seconds, rules.LEAD_SECONDS)
  local line = (cause == "busy" or cause == "open") and cause or "rate"
  if (line == "open") ~= (waiter.line == "open") then
    waiter.since = now
  end
  waiter.due = now + seconds
  -- The lines that it stands in now are those of its old record.
  local changed = {}
  for field, value in pairs(waiter) do
    changed[field] = value
  end
  changed.line = line
  keep_waiter(changed)
  keep_book()
  return {"wait", text(seconds), cause, tostring(before), text(now - waiter.since), failing or "failed"}
end

-- Breakers.

local function breaker_name(call)
  return name("breaker", call.provider, call.model)
end

local function breaker_of(call)
  local found = redis.call(
    "HMGET", breaker_name(call), "failures", "opens", "until", "probe", "probe_until", "failing")
  return {
    failures = number(found[1], 0),
    opens = number(found[2], 0),
    until_ = number(found[3], 0),
    probe = found[4] or "",
    probe_until = number(found[5], 0),
    failing = found[6] or "failed",
  }
end

local function keep_breaker(call, breaker)
  redis.call(
    "HSET", touch(breaker_name(call)),
    "provider", call.provider, "model", call.model,
    "failures", breaker.failures, "opens", breaker.opens, "until", text(breaker.until_),
    "probe", breaker.probe, "probe_until", text(breaker.probe_until), "failing", breaker.failing)
  redis.call("SADD", touch(name("breakers")), breaker_name(call))
end

local function drop_breaker(call)
  redis.call("DEL", breaker_name(call))
  redis.call("SREM", name("breakers"), breaker_name(call))
end

local function blocks(breaker, id)
  if breaker.opens == 0 then
    return 0
  elseif now < breaker.until_ then
    return breaker.until_ - now
  elseif breaker.probe ~= "" and breaker.probe ~= id and now < breaker.probe_until then
    return rules.PROBE_LOOK_SECONDS
  end
  return 0
end

-- Leases.

local function leases(model)
  local line = name("leases", key, model)
  redis.call("ZREMRANGEBYSCORE", line, "-inf", text(now))
  return line
end

local function keep_lease(call)
  redis.call("ZADD", touch(leases(call.model)), text(now + rules.LEASE_SECONDS), call.id)
  redis.call("SADD", touch(name("models", key)), call.model)
end

-- What is done.

local function ask(call, limits)
  open_book(call)
  tidy()
  local waiter = stored(call.id)
  if waiter then
    waiter.tag, waiter.since = tonumber(waiter.tag), tonumber(waiter.since)
  else
    waiter = arrive(call)
  end

  local breaker = breaker_of(call)
  local blocked = blocks(breaker, call.id)
  if blocked > 0 then
    local before = ahead(waiter, name("open", key, call.model))
    return wait(waiter, "open", blocked + before / rules.SPREAD_PER_SECOND, before, breaker.failing)
  end

  local slots = tonumber(limits.slots)
  if slots then
    local line = leases(call.model)
    local running = redis.call("ZCARD", line)
    if redis.call("ZSCORE", line, call.id) then
      running = running - 1
    end
    local before = ahead(waiter, name("busy", key, call.model))
    if before >= slots - running then
      local rounds = (before + running + 1 - slots) / slots
      local seconds = rounds * number(book["seconds:" .. call.model], rules.CALL_SECONDS)
      return wait(waiter, "busy", math.min(seconds, rules.BUSY_SECONDS_MAX), before)
    end
  end

  local rates = all_rates(call, limits)
  local before = ahead(waiter, name("rate", key))
  local paused = math.max(0, number(book.paused_until, 0) - now)
  local seconds, slowest, cause = 0, nil, "rate"
  for _, rate in ipairs(rates) do
    local units = rate.counts == "tokens" and call.tokens or 1
    local missing = math.min(units, rate.capacity) + before * units - level(rate)
    local needed = missing / rate.per_second
    if is_growing(rate) then
      needed = math.log(1 + rate.growth * math.max(0, missing) / rate.per_second) / rate.growth
    end
    if needed > seconds then
      seconds, cause = needed, is_growing(rate) and "careful" or "rate"
    end
    if rate.counts == "calls" then
      slowest = math.min(slowest or rate.per_second, rate.per_second)
    end
  end
  if paused > 0 then
    seconds = math.max(seconds, paused + before / (slowest or rules.FIRST_RATE))
  end
  if seconds > rules.LEAD_SECONDS then
    seconds = math.max(paused, math.min(seconds, rules.LINE_SECONDS_MAX))
    return wait(waiter, paused > 0 and "paused" or cause, seconds, before)
  end

  for _, rate in ipairs(rates) do
    local held = level(rate)
    keep_level(rate, held - (rate.counts == "tokens" and call.tokens or 1))
    if is_growing(rate) or (call.crowded and rate.name == "told_calls") then
      quicken(rate, held)
    end
  end
  local virtual = math.max(number(book.virtual, 0), waiter.tag)
  book.virtual = virtual
  local last = redis.call("HGETALL", name("last", key))
  for i = 1, #last, 2 do
    if tonumber(last[i + 1]) <= virtual then
      redis.call("HDEL", name("last", key), last[i])
    end
  end
  drop_waiter(call.id)
  local probes = breaker.opens > 0
  if probes then
    breaker.probe, breaker.probe_until = call.id, now + rules.LEASE_SECONDS
    keep_breaker(call, breaker)
  end
  if slots then
    keep_lease(call)
  end
  keep_book()
  return {"granted", text(seconds), (probes or slots) and "1" or "0"}
end

local FAILURES = {overloaded = true, unreachable = true, failed = true}

local function refuse(ending, limits, began)
  local asked = tonumber(ending.retry_after_seconds)
  if ending.how == "rate_limited" and began > number(book.refused_at, 0) then
    local pace = learnt()
    for _, declared in ipairs(limits.rates) do
      if declared.counts == "calls" then
        pace = math.min(pace or declared.per_second, declared.per_second)
      end
    end
    pace = pace or math.max(rules.FIRST_RATE, tonumber(ending.seen_per_second) or 0, lately())
    book.rate = math.max(rules.RATE_MIN, rules.SLOWER * pace)
    book.refused_at = now
    book.refusals = number(book.refusals, 0) + 1
    asked = asked
      or math.min(rules.BACKOFF_SECONDS * 2 ^ (book.refusals - 1), rules.BACKOFF_SECONDS_MAX)
  end
  local until_ = now + math.min(asked or 0, rules.PAUSE_SECONDS_MAX)
  book.paused_until = math.max(number(book.paused_until, 0), until_)
end

local function judge(call, ending, limits)
  local breaker = breaker_of(call)
  local probed = breaker.opens > 0 and breaker.probe == call.id
  if breaker.opens > 0 and not probed then
    return
  end
  if FAILURES[ending.how] then
    breaker.failures = breaker.failures + 1
    breaker.failing = ending.how
    if probed or breaker.failures >= limits.breaker_failures then
      local seconds = limits.breaker_seconds * 2 ^ breaker.opens
      local most = math.max(rules.BREAKER_SECONDS_MAX, limits.breaker_seconds)
      breaker.opens = breaker.opens + 1
      breaker.until_ = now + math.min(seconds, most)
      breaker.probe = ""
    end
    keep_breaker(call, breaker)
  elseif ending.how == "ok" then
    if breaker.failures > 0 then
      drop_breaker(call)
    end
  elseif probed then
    breaker.probe = ""
    keep_breaker(call, breaker)
  end
end

local function settle(call, ending, limits)
  open_book(call)
  local began = now - ending.held_seconds
  redis.call("ZREM", name("leases", key, call.model), call.id)
  if tonumber(limits.slots) then
    local known = number(book["seconds:" .. call.model], ending.held_seconds)
    book["seconds:" .. call.model] = known + 0.2 * (ending.held_seconds - known)
  end
  local tokens = tonumber(ending.tokens)
  if tokens then
    for _, given in ipairs({limits.rates, told_rates(true)}) do
      for _, rate in ipairs(given) do
        if rate.counts == "tokens" then
          keep_level(rate, level(rate) + call.tokens - tokens)
        end
      end
    end
  end
  if ending.how == "ok" and began > number(book.refused_at, 0) then
    book.refusals = 0
  end
  for _, allowance in ipairs(ending.allowances) do
    hear(allowance)
  end
  local asked = tonumber(ending.retry_after_seconds)
  if ending.how == "rate_limited" or (asked and asked > 0) then
    refuse(ending, limits, began)
  end
  judge(call, ending, limits)
  keep_book()
  return {}
end

local function renew(call, leased)
  key = call.key
  local breaker = breaker_of(call)
  if breaker.probe == call.id then
    breaker.probe_until = now + rules.LEASE_SECONDS
    keep_breaker(call, breaker)
  end
  if leased then
    keep_lease(call)
  end
  return {}
end

local function state()
  local keys, breakers = {}, {}
  for _, each in ipairs(redis.call("SMEMBERS", name("keys"))) do
    if redis.call("EXISTS", name("key", each)) == 0 then
      redis.call("SREM", name("keys"), each)
    else
      open_book({key = each})
      book.provider = redis.call("HGET", name("key", each), "provider")
      local running = 0
      for _, model in ipairs(redis.call("SMEMBERS", name("models", each))) do
        running = running + redis.call("ZCARD", leases(model))
      end
      local gone = text(now - rules.GONE_SECONDS)
      local waiting = redis.call("ZCOUNT", name("due", each), gone, "+inf")
      local paused = math.max(0, number(book.paused_until, 0) - now)
      local rate, pace, told = learnt(), known_pace(), #told_rates(false) > 0
      if paused > 0 or rate or waiting > 0 or running > 0 or number(book.refusals, 0) > 0
        or pace or told then
        keys[#keys + 1] = {each, book.provider, text(paused), rate and text(rate) or "",
          tostring(waiting), tostring(running), pace and text(pace) or "", told and "1" or ""}
      end
    end
  end
  for _, each in ipairs(redis.call("SMEMBERS", name("breakers"))) do
    local found =
      redis.call("HMGET", each, "provider", "model", "failures", "opens", "until")
    if not found[1] then
      redis.call("SREM", name("breakers"), each)
    else
      local until_ = tonumber(found[5])
      local stands = "closed"
      if tonumber(found[4]) > 0 then
        stands = now < until_ and "open" or "half_open"
      end
      breakers[#breakers + 1] =
        {found[1], found[2], stands, found[3], text(math.max(0, until_ - now))}
    end
  end
  return {keys, breakers}
end

local answer
if does == "ask" then
  answer = ask(input.call, input.limits)
elseif does == "settle" then
  answer = settle(input.call, input.ending, input.limits)
elseif does == "renew" then
  answer = renew(input.call, input.leased)
else
  answer = state()
end
-- What nobody touches is forgotten, after the longest pause that can be in force.
for each in pairs(touched) do
  redis.call("EXPIRE", each, math.ceil(2 * rules.PAUSE_SECONDS_MAX))
end
return answer
