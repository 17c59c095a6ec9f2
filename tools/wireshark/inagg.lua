-- SPDX-License-Identifier: BSD-2-Clause
--
-- inagg, wire version 1, for Wireshark and tshark. Specification: docs/PROTOCOL.md.
--
--     tshark -X lua_script:tools/wireshark/inagg.lua -r capture.pcapng
--
-- or for good in ~/.local/lib/wireshark/plugins. The tables below are wire.h and reason.h: the test
-- wireshark_matches_headers compares them row by row.

local inagg = Proto("inagg", "In-network aggregation")

local VERSION, HEADER_BYTES, MAX_ELEMENTS = 1, 64, 832

local types = {
	[1] = "CONTRIBUTION", [2] = "REQUEST", [3] = "RESTORE", [4] = "JOIN", [5] = "LEAVE", [6] = "RESULT", [7] = "WAIT",
	[8] = "CONFIG", [9] = "REFUSED", [10] = "PARTIAL", [11] = "PARAMETER", [12] = "BLOCK_FAILED", [13] = "TICK",
}

local dtypes = { [0] = "NONE", [1] = "INT32", [2] = "FIXED32", [3] = "FLOAT16", [4] = "BFLOAT16", [5] = "FLOAT32" }

local ops = { [0] = "SUM", [1] = "MIN", [2] = "MAX" }

local algorithms = { [0] = "SWITCHML", [1] = "TRIO", [2] = "ATP", [3] = "PANAMA", [4] = "CANARY" }

-- Numbers of bits.
local flags = {
	[0] = "VERSION", [1] = "RESEND", [2] = "MULTICAST", [3] = "SATURATED", [4] = "CHECKED", [5] = "DEGRADED", [6] = "FINAL",
	[7] = "COLLISION", [8] = "BYPASS", [9] = "CONGESTION", [10] = "WHOLE", [11] = "ABSENT",
}

local join_flags = {
	[0] = "CHECKED", [1] = "TREE", [2] = "WATCHED", [3] = "RETURNING", [4] = "RENEW", [5] = "MOVED", [6] = "INTEGERS",
	[7] = "BIG_ENDIAN",
}

local reasons = {
	[0] = "no reason",
	[1] = "length does not match the header",
	[2] = "unknown wire version",
	[3] = "header checksum is wrong",
	[4] = "payload checksum is wrong",
	[5] = "packet type not accepted here",
	[6] = "no such job",
	[7] = "rank outside the job, or not joined",
	[8] = "rank belongs to another port",
	[9] = "rank belongs to another address",
	[10] = "slot index outside the job's pool",
	[11] = "packet of another incarnation of the job",
	[12] = "block is older than the slot's",
	[13] = "type, operator, scale or length differs from the block's other contributions",
	[14] = "element count above the job's, no multiple of a chunk, or zero",
	[15] = "unknown data type or operator",
	[16] = "restore or floats that nobody waits for",
	[17] = "frame cannot hold the answer",
	[18] = "contribution is already in",
	[19] = "algorithm not available, or not the job's",
	[20] = "job has another number of ranks",
	[21] = "rank is held by another host",
	[22] = "MTU is smaller than the job's packets",
	[23] = "no slots, memory or job numbers left on this switch",
	[24] = "the switch makes no such job on request",
	[25] = "the job was restarted by another run",
	[26] = "headers cannot be parsed",
	[27] = "no port to send the result to",
	[28] = "slot is in use by another CPU",
	[29] = "not a parent or child of this switch",
	[30] = "rank was excluded as a permanent straggler: join again",
	[31] = "the job is at another root",
	[32] = "no root that all ranks of the job have a link to: check the links between the switches",
	[33] = "too many jobs of this host, or behind this port of the switch, wait for ranks",
	[34] = "ranks and switches need the same join key: INAGG_JOIN_KEY, inaggd --key-file",
	[35] = "prove that with this challenge",
	[36] = "the job sends more than this switch has for one job: inaggd --job-rate, --job-uplink-rate",
	[37] = "more JOINs and LEAVEs of one port, or host, than are looked at",
}

-- Members of the structs: name, offset, bytes. Their filters are inagg.NAME, inagg.join.NAME and inagg.config.NAME.
local header = {
	{ "version_type", 0, 1 },
	{ "dtype_op", 1, 1 },
	{ "level_flags", 2, 2 },
	{ "job", 4, 2 },
	{ "generation", 6, 2 },
	{ "block", 8, 4 },
	{ "slot", 12, 4 },
	{ "tree", 16, 1 },
	{ "port", 17, 1 },
	{ "source", 18, 2 },
	{ "count", 20, 2 },
	{ "fan_in", 22, 2 },
	{ "contributors", 24, 8 },
	{ "boot", 32, 2 },
	{ "window_cap", 34, 2 },
	{ "switch_id", 36, 2 },
	{ "scale", 38, 1 },
	{ "next_scale", 39, 1 },
	{ "elements", 40, 2 },
	{ "checksum", 42, 2 },
	{ "payload_checksum", 44, 4 },
	{ "check", 48, 16 },
}

local join = {
	{ "nonce", 0, 8 },
	{ "size", 8, 2 },
	{ "elements", 10, 2 },
	{ "receive_port", 12, 2 },
	{ "algorithm", 14, 1 },
	{ "flags", 15, 1 },
	{ "expiry_us", 16, 4 },
	{ "quorum", 20, 2 },
	{ "position", 22, 2 },
	{ "exclude_ms", 24, 4 },
	{ "slots", 28, 4 },
	{ "control_slots", 32, 4 },
	{ "reserved", 36, 4 },
}

local config = {
	{ "nonce", 0, 8 },
	{ "size", 8, 2 },
	{ "elements", 10, 2 },
	{ "slots", 12, 4 },
	{ "control_slots", 16, 4 },
	{ "algorithm", 20, 1 },
	{ "flags", 21, 1 },
	{ "group_port", 22, 2 },
	{ "group", 24, 16 },
}

local refusal = {
	{ "nonce", 0, 8 },
	{ "asked", 8, 16 },
	{ "above", 24, 16 },
}

-- Fields

local all_fields = {}

local function new_field(constructor, name, ...)
	local field = ProtoField[constructor]("inagg." .. name, name, ...)
	all_fields[#all_fields + 1] = field
	return field
end

local constructor_of = { [1] = "uint8", [2] = "uint16", [4] = "uint32", [8] = "uint64" }
local number_names = { algorithm = algorithms }
local in_hexadecimal = { contributors = true, nonce = true, checksum = true, payload_checksum = true, level_flags = true, flags = true }

local function struct_fields(members, prefix)
	local fields = {}
	for _, member in ipairs(members) do
		local name, bytes = member[1], member[3]
		local constructor = constructor_of[bytes]
		if not constructor then
			fields[name] = new_field("bytes", prefix .. name)
		elseif in_hexadecimal[name] then
			fields[name] = new_field(constructor, prefix .. name, base.HEX)
		else
			fields[name] = new_field(constructor, prefix .. name, base.DEC, number_names[name])
		end
	end
	return fields
end

local function flag_fields(names, prefix, width)
	local fields = {}
	for bit_number = 0, width - 1 do
		if names[bit_number] then
			fields[#fields + 1] =
				new_field("bool", prefix .. names[bit_number]:lower(), width, nil, 2 ^ bit_number)
		end
	end
	return fields
end

local header_fields = struct_fields(header, "")
local join_fields = struct_fields(join, "join.")
local config_fields = struct_fields(config, "config.")
local refusal_fields = struct_fields(refusal, "refusal.")
local flag_bits = flag_fields(flags, "flags.", 16)
local join_flag_bits = flag_fields(join_flags, "join.flags.", 8)
local config_flag_bits = flag_fields(join_flags, "config.flags.", 8)

local field = {
	version = new_field("uint8", "version", base.DEC, nil, 0xf0),
	type = new_field("uint8", "type", base.DEC, types, 0x0f),
	dtype = new_field("uint8", "dtype", base.DEC, dtypes, 0xf0),
	op = new_field("uint8", "op", base.DEC, ops, 0x0f),
	level = new_field("uint16", "level", base.DEC, nil, 0xf000),
	rank = new_field("uint16", "rank"),
	reason = new_field("uint32", "reason", base.DEC, reasons),
	contributor = new_field("uint8", "contributor"),
	header_good = new_field("bool", "checksum.good"),
	payload_good = new_field("bool", "payload_checksum.good"),
	integer = new_field("int32", "integer"),
	value = new_field("double", "value"),
	contribution_in = new_field("framenum", "contribution_in", base.NONE, frametype.REQUEST),
	answer_in = new_field("framenum", "answer_in", base.NONE, frametype.RESPONSE),
	time = new_field("relative_time", "time"),
}
inagg.fields = all_fields

local expert = {
	version = ProtoExpert.new("inagg.expert.version", "unknown wire version", expert.group.PROTOCOL, expert.severity.ERROR),
	type = ProtoExpert.new("inagg.expert.type", "unknown type", expert.group.PROTOCOL, expert.severity.ERROR),
	header = ProtoExpert.new("inagg.expert.checksum", "header checksum is wrong", expert.group.CHECKSUM, expert.severity.ERROR),
	payload = ProtoExpert.new("inagg.expert.payload_checksum", "payload checksum is wrong", expert.group.CHECKSUM,
		expert.severity.ERROR),
	length = ProtoExpert.new("inagg.expert.length", "length does not match the header", expert.group.MALFORMED,
		expert.severity.ERROR),
	refused = ProtoExpert.new("inagg.expert.refused", "refused", expert.group.RESPONSE_CODE, expert.severity.WARN),
}
inagg.experts = { expert.version, expert.type, expert.header, expert.payload, expert.length, expert.refused }

inagg.prefs.port = Pref.uint("UDP port", 12000, "of every switch")
inagg.prefs.show_elements = Pref.bool("Show elements", true, "one field for each: slow in large captures")

-- Numbers

local function struct_bytes(members)
	local last = members[#members]
	return last[2] + last[3]
end

local function names_of_bits(value, names)
	local set = {}
	for bit_number = 0, 15 do
		if math.floor(value / 2 ^ bit_number) % 2 == 1 then
			set[#set + 1] = names[bit_number] or tostring(bit_number)
		end
	end
	return table.concat(set, " ")
end

-- Ones' complement sum of the header, its checksum included: 0xffff if that is right (PROTOCOL.md, 8).
local function header_sum(buffer)
	local sum = 0
	for at = 0, HEADER_BYTES - 2, 2 do
		sum = sum + buffer(at, 2):uint()
	end
	while sum > 0xffff do
		sum = sum % 0x10000 + math.floor(sum / 0x10000)
	end
	return sum
end

-- D of PROTOCOL.md, 8, of the words word(0) .. word(count - 1). The prefixes of 832 words fit the 53 bits of a double.
local function digest(count, word)
	local sum, order = 0, 0
	for i = 0, count - 1 do
		sum = sum + word(i)
		order = order + sum
	end
	local function wide(number)
		return UInt64(number % 2 ^ 32, math.floor(number / 2 ^ 32))
	end
	local x = wide(order)
	x = x:bxor(x:rshift(32)) * UInt64(0x7f4a7c15, 0x9e3779b9)
	x = x:bxor(x:rshift(32)) + wide(sum)
	x = x:bxor(x:rshift(32)) * UInt64(0x27d4eb4f, 0xc2b2ae3d)
	return x:bxor(x:rshift(32)):lower()
end

local function payload_checksum_holds(buffer)
	local of_header = digest(HEADER_BYTES / 4, function(i)
		if i == 10 then
			return buffer(40, 2):le_uint() -- without `checksum`
		end
		return i == 11 and 0 or buffer(4 * i, 4):le_uint()
	end)
	local of_payload = digest((buffer:len() - HEADER_BYTES) / 4, function(i)
		return buffer(HEADER_BYTES + 4 * i, 4):le_uint()
	end)
	return (of_header + of_payload) % 2 ^ 32 == buffer(44, 4):le_uint()
end

-- A binary float of so many bits, as a number.
local function small_float(bits, exponent_bits, mantissa_bits)
	local sign = bits >= 0x8000 and -1 or 1
	local exponent = math.floor(bits / 2 ^ mantissa_bits) % 2 ^ exponent_bits
	local mantissa = bits % 2 ^ mantissa_bits
	local bias = 2 ^ (exponent_bits - 1) - 1
	if exponent == 2 ^ exponent_bits - 1 then
		return mantissa == 0 and sign * math.huge or 0 / 0
	elseif exponent == 0 then
		return sign * mantissa * 2 ^ (1 - bias - mantissa_bits)
	end
	return sign * (1 + mantissa / 2 ^ mantissa_bits) * 2 ^ (exponent - bias)
end

-- Fixed point (PROTOCOL.md, 6): the sum of `count` ranks of `fan_in`, each with a bias, at the exponent `scale`.
local function fixed_to_number(u, count, fan_in, scale)
	local log2 = 0
	while 2 ^ log2 < fan_in do
		log2 = log2 + 1
	end
	return (u - count * 2 ^ (31 - log2)) * 2 ^ (scale + log2 - 157)
end

local element_bytes = { [1] = 4, [2] = 4, [3] = 2, [4] = 2, [5] = 4 }

-- As the job's CONFIG has said.
local function integer_of(range, h)
	return h.big_endian and range:int() or range:le_int()
end

-- Element of each data type as (field, value).
local decode = {
	[1] = function(range, h)
		return field.integer, integer_of(range, h)
	end,
	[2] = function(range, h)
		if h.scale == 0 or h.scale == 255 then -- a guess without a scale: any value
			return field.integer, integer_of(range, h)
		end
		return field.value, fixed_to_number(integer_of(range, h) % 2 ^ 32, h.count, h.fan_in, h.scale)
	end,
	[3] = function(range)
		return field.value, small_float(range:le_uint(), 5, 10)
	end,
	[4] = function(range)
		return field.value, small_float(range:le_uint(), 8, 7)
	end,
	[5] = function(range, h)
		return field.value, h.big_endian and range:float() or range:le_float()
	end,
}

-- Contributions and their answers, and jobs with big-endian elements, found in the first pass over the capture

local first_contribution = {} -- by block and worker: { frame, time }
local answers = {} -- by frame: { frame, seconds }, both ways
local big_endian = {} -- by switch, job and generation

function inagg.init()
	first_contribution, answers, big_endian = {}, {}, {}
end

local function note_byte_order(buffer, h, pinfo)
	local switch = pinfo.src_port == inagg.prefs.port and pinfo.src or pinfo.dst
	local run = string.format("%s %d %d", tostring(switch), h.job, h.generation)
	if h.name == "CONFIG" and not pinfo.visited and buffer:len() >= HEADER_BYTES + struct_bytes(config) then
		big_endian[run] = buffer(HEADER_BYTES + 21, 1):bitfield(0, 1) == 1 -- flags, bit 7
	end
	h.big_endian = big_endian[run]
end

local asks = { CONTRIBUTION = true, PARTIAL = true }
local tells = { RESULT = true, BLOCK_FAILED = true }

-- A worker is its address and port: `source` of a RESULT is the rank that completed it.
local function track(h, pinfo)
	if pinfo.visited then
		return
	end
	local block = string.format("%d %d %d %d ", h.job, h.generation, h.slot, h.block)
	if asks[h.name] then
		local key = block .. tostring(pinfo.src) .. " " .. pinfo.src_port
		first_contribution[key] = first_contribution[key] or { pinfo.number, pinfo.abs_ts }
	elseif tells[h.name] then
		local asked = first_contribution[block .. tostring(pinfo.dst) .. " " .. pinfo.dst_port]
		if asked then
			answers[pinfo.number] = { asked[1], pinfo.abs_ts - asked[2] }
			answers[asked[1]] = answers[asked[1]] or { pinfo.number }
		end
	end
end

local function add_answer(tree, h, pinfo)
	local answer = answers[pinfo.number]
	if answer and asks[h.name] then
		tree:add(field.answer_in, answer[1]):set_generated()
	elseif answer then
		local seconds = math.floor(answer[2])
		tree:add(field.contribution_in, answer[1]):set_generated()
		tree:add(field.time, NSTime(seconds, math.floor((answer[2] - seconds) * 1e9))):set_generated()
	end
end

-- Trees

local function add_struct(tree, buffer, members, fields, special)
	for _, member in ipairs(members) do
		local name, range = member[1], buffer(member[2], member[3])
		local add = name == "payload_checksum" and tree.add_le or tree.add -- that one is stored without a swap
		local item = add(tree, fields[name], range)
		if special[name] then
			special[name](item, range, buffer)
		end
	end
end

local function add_flags(names, bits)
	return function(item, range)
		item:append_text(" " .. names_of_bits(range:uint(), names))
		for _, bit_field in ipairs(bits) do
			item:add(bit_field, range)
		end
	end
end

local function add_contributors(item, range)
	local ranks = {}
	for rank = 0, 63 do
		if range:bitfield(63 - rank, 1) == 1 then
			ranks[#ranks + 1] = rank
			item:add(field.contributor, range, rank):set_generated()
		end
	end
	item:append_text(#ranks == 0 and " (nobody)" or " (" .. table.concat(ranks, " ") .. ")")
end

local function add_checksum(item, range, good, good_field, wrong)
	item:add(good_field, range, good):set_generated()
	item:append_text(good and " [correct]" or " [wrong]")
	if not good then
		item:add_proto_expert_info(wrong)
	end
end

local function add_header(tree, buffer, h)
	add_struct(tree, buffer, header, header_fields, {
		version_type = function(item, range)
			local version = item:add(field.version, range)
			local kind = item:add(field.type, range)
			if h.version ~= VERSION then
				version:add_proto_expert_info(expert.version)
			end
			if not types[h.type] then
				kind:add_proto_expert_info(expert.type)
			end
			item:append_text(" " .. h.name)
		end,
		dtype_op = function(item, range)
			item:add(field.dtype, range)
			item:add(field.op, range)
			item:append_text(string.format(" %s %s", dtypes[h.dtype] or "?", ops[h.op] or "?"))
		end,
		level_flags = function(item, range)
			item:add(field.level, range)
			add_flags(flags, flag_bits)(item, range)
		end,
		slot = function(item, range)
			if h.name == "REFUSED" then
				item:add(field.reason, range):add_proto_expert_info(expert.refused, reasons[h.slot] or "unknown reason")
			end
		end,
		source = function(item, range)
			item:add(field.rank, range)
		end,
		contributors = add_contributors,
		checksum = function(item, range)
			add_checksum(item, range, header_sum(buffer) == 0xffff, field.header_good, expert.header)
		end,
		payload_checksum = function(item, range)
			if h.checked and buffer:len() == buffer:reported_len() and (buffer:len() - HEADER_BYTES) % 4 == 0 then
				add_checksum(item, range, payload_checksum_holds(buffer), field.payload_good, expert.payload)
			end
		end,
	})
end

local function add_elements(tree, buffer, h)
	local bytes, rest = element_bytes[h.dtype], buffer:len() - HEADER_BYTES
	if not bytes or rest == 0 then
		return
	end
	local list = tree:add(inagg, buffer(HEADER_BYTES), string.format("Elements: %d of %s", h.elements, dtypes[h.dtype]))
	if inagg.prefs.show_elements then
		for i = 0, math.min(h.elements, MAX_ELEMENTS, math.floor(rest / bytes)) - 1 do
			local range = buffer(HEADER_BYTES + bytes * i, bytes)
			local element_field, value = decode[h.dtype](range, h)
			list:add(element_field, range, value):prepend_text("[" .. i .. "] ")
		end
	end
end

local LEVEL_ABOVE = 1

local function add_group(item, range, config_buffer)
	if config_buffer(22, 2):uint() == 0 then
		item:append_text(string.format(" (stragglers: temporary 0x%s, permanent 0x%s)", range(0, 8):bytes():tohex(true),
			range(8, 8):bytes():tohex(true)))
	elseif range(4, 12):bytes() ~= ByteArray.new("000000000000000000000000") then
		item:append_text(" (" .. tostring(range:ipv6()) .. ")")
	elseif range(0, 4):uint() ~= 0 then
		item:append_text(" (" .. tostring(range(0, 4):ipv4()) .. ")")
	end
end

local function add_mapped(item, range)
	local ipv4 = range(0, 12):bytes() == ByteArray.new("00000000000000000000ffff")
	item:append_text(" (" .. tostring(ipv4 and range(12, 4):ipv4() or range:ipv6()) .. ")")
end

local body_of = {
	JOIN = { "Join", join, join_fields, { flags = add_flags(join_flags, join_flag_bits) } },
	CONFIG = { "Configuration", config, config_fields, { flags = add_flags(join_flags, config_flag_bits), group = add_group } },
}
body_of.LEAVE, body_of.REFUSED = body_of.JOIN, body_of.JOIN
local refusal_from_above = { "Refusal", refusal, refusal_fields, { above = add_mapped } }

local function body_for(h)
	return h.name == "REFUSED" and h.level == LEVEL_ABOVE and refusal_from_above or body_of[h.name]
end

-- Bytes behind the header, as its fields tell.
local function payload_bytes(h)
	local body = body_for(h)
	if body then
		return struct_bytes(body[2])
	elseif h.name == "REQUEST" or h.name == "WAIT" or h.name == "BLOCK_FAILED" then
		return 0
	end
	return h.elements * (element_bytes[h.dtype] or 0)
end

-- Are there so many bytes behind the header? A contribution may bring several blocks.
local function has_length(h, bytes)
	local block = payload_bytes(h)
	return bytes == block or h.name == "CONTRIBUTION" and block > 0 and bytes > MAX_ELEMENTS * 4 and bytes % block == 0
end

local function add_payload(tree, buffer, h)
	local body = body_for(h)
	if not has_length(h, buffer:reported_len() - HEADER_BYTES) then
		tree:add_proto_expert_info(expert.length)
	end
	if not body then
		add_elements(tree, buffer, h)
	elseif buffer:len() >= HEADER_BYTES + struct_bytes(body[2]) then
		local range = buffer(HEADER_BYTES, struct_bytes(body[2]))
		add_struct(tree:add(inagg, range, body[1]), range:tvb(), body[2], body[3], body[4])
	end
end

-- What the rest of the dissection asks the header for.
local function read_header(buffer)
	local level_flags = buffer(2, 2):uint()
	local h = {
		version = buffer(0, 1):bitfield(0, 4), type = buffer(0, 1):bitfield(4, 4),
		dtype = buffer(1, 1):bitfield(0, 4), op = buffer(1, 1):bitfield(4, 4),
		level = buffer(2, 1):bitfield(0, 4), checked = math.floor(level_flags / 16) % 2 == 1, flags = names_of_bits(level_flags % 0x1000, flags),
	}
	for _, member in ipairs(header) do
		if member[3] == 2 or member[3] == 4 or member[1] == "scale" then
			h[member[1]] = buffer(member[2], member[3]):uint()
		end
	end
	h.name = types[h.type] or "type " .. h.type
	return h
end

local function summary(h)
	local text = string.format("%s job %d/%d rank %d", h.name, h.job, h.generation, h.source)
	if h.name == "REFUSED" then
		text = text .. ": " .. (reasons[h.slot] or "unknown reason")
	elseif not body_of[h.name] then
		text = string.format("%s block %d slot %d, %d of %d in", text, h.block, h.slot, h.count, h.fan_in)
		if h.elements > 0 then
			text = string.format("%s, %d %s %s", text, h.elements, dtypes[h.dtype] or "?", ops[h.op] or "?")
		end
	end
	return h.flags == "" and text or text .. " [" .. h.flags .. "]"
end

-- Others use the port, too: what is neither of this version nor has the checksum is theirs.
function inagg.dissector(buffer, pinfo, root)
	if buffer:len() < HEADER_BYTES or buffer(0, 1):bitfield(0, 4) ~= VERSION and header_sum(buffer) ~= 0xffff then
		return 0
	end
	local h = read_header(buffer)
	pinfo.cols.protocol = "inagg"
	pinfo.cols.info = summary(h)
	track(h, pinfo)
	note_byte_order(buffer, h, pinfo)
	local tree = root:add(inagg, buffer())
	tree:append_text(", " .. summary(h))
	add_header(tree, buffer, h)
	add_payload(tree, buffer, h)
	add_answer(tree, h, pinfo)
	return buffer:len()
end

local udp_ports = DissectorTable.get("udp.port")
local port = inagg.prefs.port
udp_ports:add(port, inagg)

function inagg.prefs_changed()
	if port ~= inagg.prefs.port then
		udp_ports:remove(port, inagg)
		port = inagg.prefs.port
		udp_ports:add(port, inagg)
	end
end
