-- What Nawa sends, for Wireshark and tshark: the tunnel's datagrams, the frames of coding and of flood, as docs/wire.md and
-- crates/coding/src/header.rs have them. Put it into Wireshark's folder of personal Lua plugins (Help, About, Folders), or name it:
--
--     tshark -X lua_script:nawa.lua -r FILE
--
-- What a transport packet carries is sealed: a file made by `nawa capture` says it in each packet's comment.

-- ---- the tunnel ---------------------------------------------------------------------------------------------------------------------

local tunnel = Proto("nawa", "Nawa tunnel")
local kinds = {
    [1] = "initiation", [2] = "response", [3] = "cookie reply", [4] = "transport", [5] = "registered",
    [8] = "relay up", [9] = "relay down", [10] = "relay challenge", [11] = "relay echo",
}
-- Bytes of the kinds of fixed length; the least bytes of the others.
local exact = { [1] = 168, [2] = 124, [3] = 64, [5] = 40, [10] = 28, [11] = 28 }
local least = { [4] = 33, [8] = 13, [9] = 13 }

local f = {
    version = ProtoField.uint8("nawa.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("nawa.type", "Type", base.DEC, kinds, 0x0f),
    sender = ProtoField.uint32("nawa.sender", "Sender's index", base.HEX),
    receiver = ProtoField.uint32("nawa.receiver", "Receiver's index", base.HEX),
    noise = ProtoField.bytes("nawa.noise", "Noise message"),
    mac1 = ProtoField.bytes("nawa.mac1", "mac1"),
    mac2 = ProtoField.bytes("nawa.mac2", "mac2"),
    nonce = ProtoField.bytes("nawa.nonce", "Nonce"),
    sealed = ProtoField.bytes("nawa.sealed", "Sealed"),
    path = ProtoField.uint16("nawa.path", "Path id"),
    sequence = ProtoField.uint64("nawa.sequence", "Path sequence"),
    counter = ProtoField.uint64("nawa.counter", "Counter"),
    tag = ProtoField.bytes("nawa.tag", "Tag"),
    session = ProtoField.uint64("nawa.session", "Relay's session", base.HEX),
    token = ProtoField.bytes("nawa.token", "Token"),
}
tunnel.fields = f
local malformed = ProtoExpert.new("nawa.malformed", "No such message", expert.group.MALFORMED, expert.severity.ERROR)
tunnel.experts = { malformed }

-- Whether the bytes are a message of the tunnel's: version, type, length, and reserved bytes that are 0.
local function is_message(buffer, relayed)
    local length = buffer:len()
    if length < 13 or buffer(0, 1):bitfield(0, 4) ~= 1 then return false end
    local kind = buffer(0, 1):bitfield(4, 4)
    if exact[kind] then return length == exact[kind] and buffer(1, 3):uint() == 0 end
    if not least[kind] or length < least[kind] then return false end
    if kind == 4 then return buffer(1, 1):uint() == 0 end
    -- A relay's datagram is in no other relay's.
    return not relayed and buffer(1, 3):uint() == 0 and is_message(buffer(12):tvb(), true)
end

local function dissect_message(buffer, tree, relayed)
    local kind, length = buffer(0, 1):bitfield(4, 4), buffer:len()
    tree:add(f.version, buffer(0, 1))
    tree:add(f.kind, buffer(0, 1))
    local name = kinds[kind] or "unknown"
    if not is_message(buffer, relayed) then
        tree:add_proto_expert_info(malformed)
        return "malformed"
    end
    if kind == 1 then
        tree:add(f.sender, buffer(4, 4))
        tree:add(f.noise, buffer(8, 128))
        tree:add(f.mac1, buffer(136, 16))
        tree:add(f.mac2, buffer(152, 16))
    elseif kind == 2 then
        tree:add(f.sender, buffer(4, 4))
        tree:add(f.receiver, buffer(8, 4))
        tree:add(f.noise, buffer(12, 80))
        tree:add(f.mac1, buffer(92, 16))
        tree:add(f.mac2, buffer(108, 16))
    elseif kind == 3 then
        tree:add(f.receiver, buffer(4, 4))
        tree:add(f.nonce, buffer(8, 24))
        tree:add(f.sealed, buffer(32, 32))
    elseif kind == 4 then
        tree:add(f.path, buffer(2, 2))
        tree:add(f.receiver, buffer(4, 4))
        tree:add(f.sequence, buffer(8, 8))
        tree:add(f.sealed, buffer(16, length - 32))
        tree:add(f.tag, buffer(length - 16, 16))
        name = string.format("path %d packet %s, %d bytes sealed", buffer(2, 2):uint(), tostring(buffer(8, 8):uint64()), length - 32)
    elseif kind == 5 then
        tree:add(f.receiver, buffer(4, 4))
        tree:add(f.counter, buffer(8, 8))
        tree:add(f.sealed, buffer(16, 24))
    else
        tree:add(f.session, buffer(4, 8))
        if kind >= 10 then
            tree:add(f.token, buffer(12, 16))
        else
            local inside = buffer(12)
            name = name .. ": " .. dissect_message(inside:tvb(), tree:add(tunnel, inside, "Nawa tunnel, relayed"), true)
        end
    end
    return name
end

function tunnel.dissector(buffer, info, root)
    if buffer:len() == 0 then return 0 end
    info.cols.protocol = "NAWA"
    info.cols.info = dissect_message(buffer, root:add(tunnel, buffer()), false)
    return buffer:len()
end

-- Ports are configured, so packets are known by what they are.
tunnel:register_heuristic("udp", function(buffer, info, root)
    if not is_message(buffer) then return false end
    tunnel.dissector(buffer, info, root)
    return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(tunnel)

-- ---- coding -------------------------------------------------------------------------------------------------------------------------

local coding = Proto("nawa_coding", "Nawa coding")
local coding_kinds = { [0] = "plain", [1] = "sum", [2] = "report", [3] = "greeting" }
local coding_bytes = { [0] = 10, [1] = 26, [2] = 22, [3] = 10 }
local c = {
    version = ProtoField.uint8("nawa_coding.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("nawa_coding.kind", "Kind", base.DEC, coding_kinds, 0x0f),
    flow = ProtoField.uint16("nawa_coding.flow", "Flow", base.HEX),
    sequence = ProtoField.uint32("nawa_coding.tcp_sequence", "TCP sequence number"),
    checksum = ProtoField.uint16("nawa_coding.tcp_checksum", "TCP checksum", base.HEX),
    wanted = ProtoField.bool("nawa_coding.wanted", "Second packet is wanted again", 8, nil, 0x80),
    number = ProtoField.uint16("nawa_coding.number", "Number for the second receiver"),
    second = ProtoField.ether("nawa_coding.second_receiver", "Second receiver"),
    digest = ProtoField.uint32("nawa_coding.digest", "Digest", base.HEX),
    length = ProtoField.uint16("nawa_coding.length", "Length"),
    tos = ProtoField.uint8("nawa_coding.tos", "Traffic class", base.HEX),
    hops = ProtoField.uint8("nawa_coding.hop_limit", "Hop limit"),
    sum = ProtoField.bytes("nawa_coding.sum", "Sum of both"),
    newest = ProtoField.uint16("nawa_coding.newest", "Newest number overheard"),
    lost = ProtoField.uint16("nawa_coding.lost", "Numbers missed, ever"),
    missing = ProtoField.uint64("nawa_coding.missing", "Missing before the newest", base.HEX),
    asks = ProtoField.bool("nawa_coding.asks", "Asks for an answer", 8, nil, 0x80),
    nonce = ProtoField.uint64("nawa_coding.nonce", "Nonce", base.HEX),
}
coding.fields = c
local coding_malformed =
    ProtoExpert.new("nawa_coding.malformed", "No such frame", expert.group.MALFORMED, expert.severity.ERROR)
coding.experts = { coding_malformed }
local ipv4, ipv6 = Dissector.get("ip"), Dissector.get("ipv6")

local function label(buffer, at, tree, name)
    local branch = tree:add(coding, buffer(at, 8), name)
    branch:add(c.digest, buffer(at, 4))
    branch:add(c.length, buffer(at + 4, 2))
    branch:add(c.tos, buffer(at + 6, 1))
    branch:add(c.hops, buffer(at + 7, 1))
    return buffer(at + 4, 2):uint()
end

function coding.dissector(buffer, info, root)
    if buffer:len() < 2 then return 0 end
    info.cols.protocol = "NAWA-NC"
    local tree = root:add(coding, buffer())
    local kind = buffer(0, 1):bitfield(4, 4)
    tree:add(c.version, buffer(0, 1))
    tree:add(c.kind, buffer(0, 1))
    info.cols.info = coding_kinds[kind] or "unknown"
    if buffer(0, 1):bitfield(0, 4) ~= 2 or not coding_bytes[kind] or buffer:len() < coding_bytes[kind] then
        tree:add_proto_expert_info(coding_malformed)
        return buffer:len()
    end
    if kind == 0 then
        tree:add(c.flow, buffer(2, 2))
        tree:add(c.sequence, buffer(4, 4))
        tree:add(c.checksum, buffer(8, 2))
        tree:set_len(10)
        if buffer:len() > 10 then
            local inside = buffer(10):tvb()
            local dissector = inside(0, 1):bitfield(0, 4) == 6 and ipv6 or ipv4
            dissector:call(inside, info, root)
        end
    elseif kind == 1 then
        tree:add(c.wanted, buffer(1, 1))
        tree:add(c.number, buffer(2, 2))
        tree:add(c.second, buffer(4, 6))
        local first = label(buffer, 10, tree, "First packet")
        local second = label(buffer, 18, tree, "Second packet")
        local sum = math.max(first, second)
        if buffer:len() < 26 + sum then
            tree:add_proto_expert_info(coding_malformed)
            return buffer:len()
        end
        tree:add(c.sum, buffer(26, sum))
        info.cols.info = string.format("sum of %d and %d bytes, number %d for %s",
            first, second, buffer(2, 2):uint(), tostring(buffer(4, 6):ether()))
    elseif kind == 2 then
        tree:add(c.newest, buffer(2, 2))
        tree:add(c.lost, buffer(4, 2))
        tree:add(c.missing, buffer(6, 8))
        tree:add(c.nonce, buffer(14, 8))
        info.cols.info = string.format("report up to %d, %d missed", buffer(2, 2):uint(), buffer(4, 2):uint())
    else
        tree:add(c.asks, buffer(1, 1))
        tree:add(c.nonce, buffer(2, 8))
    end
    return buffer:len()
end
DissectorTable.get("ethertype"):add(0x88b6, coding)

-- ---- flood --------------------------------------------------------------------------------------------------------------------------

local flood = Proto("nawa_flood", "Nawa flood")
local flood_kinds = { [0] = "data", [1] = "echo request", [2] = "echo reply" }
local o = {
    version = ProtoField.uint8("nawa_flood.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("nawa_flood.kind", "Kind", base.DEC, flood_kinds, 0x0f),
    ttl = ProtoField.uint8("nawa_flood.ttl", "TTL"),
    length = ProtoField.uint16("nawa_flood.length", "Length"),
    id = ProtoField.uint32("nawa_flood.id", "ID"),
    epoch = ProtoField.uint32("nawa_flood.epoch", "Epoch"),
    sequence = ProtoField.uint32("nawa_flood.sequence", "Sequence"),
    tag = ProtoField.bytes("nawa_flood.tag", "Tag"),
    target = ProtoField.uint32("nawa_flood.target", "Who is to answer"),
    data = ProtoField.bytes("nawa_flood.data", "Data"),
}
flood.fields = o
local flood_malformed =
    ProtoExpert.new("nawa_flood.malformed", "No such frame", expert.group.MALFORMED, expert.severity.ERROR)
flood.experts = { flood_malformed }
-- Version 0 has no room to say so: a network has one version, which is configured.
flood.prefs.paper = Pref.bool("Wire version 0", false, "The network's frames are of version 0, the paper's")

function flood.dissector(buffer, info, root)
    info.cols.protocol = "NAWA-FLOOD"
    local tree, have = root:add(flood, buffer()), buffer:len()
    local header = flood.prefs.paper and 5 or 24
    local at = flood.prefs.paper and 3 or 2
    local right = have >= header and buffer(at, 2):uint() <= math.min(2307, have - header)
    local kind = 0
    if right and not flood.prefs.paper then
        kind = buffer(0, 1):bitfield(4, 4)
        right = buffer(0, 1):bitfield(0, 4) == 1 and flood_kinds[kind] ~= nil
    end
    if not right then
        tree:add_proto_expert_info(flood_malformed)
        info.cols.info = "malformed"
        return have
    end
    local id, sequence
    if flood.prefs.paper then
        id, sequence = buffer(0, 1), buffer(1, 1)
        tree:add(o.id, id)
        tree:add(o.sequence, sequence)
        tree:add(o.ttl, buffer(2, 1))
        tree:add(o.length, buffer(3, 2))
    else
        id, sequence = buffer(4, 4), buffer(12, 4)
        tree:add(o.version, buffer(0, 1))
        tree:add(o.kind, buffer(0, 1))
        tree:add(o.ttl, buffer(1, 1))
        tree:add(o.length, buffer(2, 2))
        tree:add(o.id, id)
        tree:add(o.epoch, buffer(8, 4))
        tree:add(o.sequence, sequence)
        tree:add(o.tag, buffer(16, 8))
    end
    local length = buffer(at, 2):uint()
    if kind == 1 and length >= 4 then tree:add(o.target, buffer(header, 4)) end
    if length > 0 then tree:add(o.data, buffer(header, length)) end
    info.cols.info = string.format("%s of %d, sequence %d, %d bytes", flood_kinds[kind], id:uint(), sequence:uint(), length)
    return have
end
DissectorTable.get("ethertype"):add(0x88b5, flood)
-- Of the modes `kernel` and `application`, where the file names no other.
DissectorTable.get("udp.port"):add(51902, flood)
