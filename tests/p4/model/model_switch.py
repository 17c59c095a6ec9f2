#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A Tofino of its chip's model: what bf_switchd is to its users, BF Runtime on one side and ports on the other.

usage: model_switch.py COMPILED BF_RT_JSON ADDRESS:PORT LOSS NUMBER=INTERFACE...

LOSS is the share of the frames of hosts that get lost on their way in.  COMPILED is what the compiler left (out/pipe), BF_RT_JSON what it wrote with --bf-rt-schema; frames of an interface go into the
model by the port of that number, and what comes out there leaves by the interface.  The model's harness adds entries and
changes none: when one is changed or erased, or a register is cleared, a new model starts, with what is in the tables then.
"""

import json
import random
import select
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
from bfrt_grpc import bfruntime_pb2 as pb
from bfrt_grpc import bfruntime_pb2_grpc

NOT_FOUND, INVALID, EXISTS = 5, 3, 6


def field(number, name, kind, width=None):
    """As bf-rt.json describes one."""
    said = {"type": kind} if width is None else {"type": kind, "width": width}
    return {"id": number, "name": name, "repeated": False, "annotations": [], "mandatory": False, "match_type": "Exact", "type": said}


def table(number, name, kind, keys, data, actions=()):
    singles = [{"mandatory": False, "read_only": False,
                "singleton": {"id": i, "name": field_name, "repeated": many, "annotations": [],
                              "type": {"type": type_, **({"width": 8} if type_ == "bytes" else {})}}}
               for i, (field_name, type_, many) in enumerate(data, 1)]
    return {"name": name, "id": number, "table_type": kind, "size": 65536, "annotations": [], "depends_on": [],
            "key": [{**field(i, *key), "mandatory": True} for i, key in enumerate(keys, 1)], "data": singles, "attributes": [],
            "supported_operations": [], "has_const_default_action": False,
            **({"action_specs": [{"id": i, "name": action, "data": [field(100 + j, *of) for j, of in enumerate(parameters)]}
                                 for i, (action, parameters) in enumerate(actions, 1)]} if actions else {})}


# Of the tables that every Tofino has, those that inaggd needs.
OTHERS = {"schema_version": "1.0.0", "learn_filters": [], "tables": [
    table(1, "$pre.mgid", "PreMgid", [("$MGID", "uint16")],
          [("$MULTICAST_NODE_ID", "uint32", True), ("$MULTICAST_NODE_L1_XID_VALID", "bool", True),
           ("$MULTICAST_NODE_L1_XID", "uint16", True)]),
    table(2, "$pre.node", "PreNode", [("$MULTICAST_NODE_ID", "uint32")],
          [("$MULTICAST_RID", "uint16", False), ("$MULTICAST_LAG_ID", "uint8", True), ("$DEV_PORT", "uint32", True)]),
    table(3, "$PORT", "PortConfigure", [("$DEV_PORT", "uint32")], [("$PORT_UP", "bool", False)]),
    table(4, "tf1.dev.device_configuration", "DevConfigure", [], [("num_pipes", "uint32", False)]),
    table(5, "tf1.pktgen.port_cfg", "PktgenPortCfg", [("dev_port", "uint32")], [("pktgen_enable", "bool", False)]),
    table(6, "tf1.pktgen.pkt_buffer", "PktgenPktBufferCfg", [("pkt_buffer_offset", "uint32"), ("pkt_buffer_size", "uint32")],
          [("buffer", "bytes", True)]),
    table(7, "tf1.pktgen.app_cfg", "PktgenAppCfg", [("app_id", "uint32")],
          [("app_enable", "bool", False), *((name, "uint32", False) for name in (
              "pkt_len", "pkt_buffer_offset", "pipe_local_source_port", "batch_count_cfg", "packets_per_batch_cfg", "ibg", "ipg"))],
          [("trigger_timer_periodic", [("timer_nanosec", "uint32")])])]}


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Schema:
    """The tables by number and by name."""

    def __init__(self, program, others):
        self.tables = {t["id"]: t for t in program["tables"] + others["tables"]}
        self.by_name = {t["name"]: t for t in self.tables.values()}

    def name(self, number):
        return self.tables[number]["name"]

    def key(self, number, key):
        names = {k["id"]: k["name"] for k in self.tables[number]["key"]}
        return {names[f.field_id]: int.from_bytes(f.exact.value, "big") for f in key.fields}

    def action(self, number, action):
        return next((a for a in self.tables[number].get("action_specs", ()) if a["id"] == action), None)

    def data(self, number, data):
        """(action's name, its parameters) or ("", fields)."""
        action = self.action(number, data.action_id)
        fields = [*(action["data"] if action else ()), *self.tables[number].get("data", ())]
        names = {f.get("singleton", f)["id"]: f.get("singleton", f)["name"] for f in fields}
        return (action["name"] if action else "", {names[f.field_id]: value_of(f) for f in data.fields})


def value_of(data_field):
    kind = data_field.WhichOneof("value")
    value = getattr(data_field, kind)
    return int.from_bytes(value, "big") if kind == "stream" else list(value.val) if kind.endswith("arr_val") else value


class Harness:
    """The model's own test harness, by what it reads and writes."""

    def __init__(self, compiled):
        self.child = subprocess.Popen(["tofino_test_harness", "-l", compiled, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)
        self.marks = 0

    def say(self, line):
        self.child.stdin.write(line.encode() + b"\n")

    def hear(self):
        """All that it says to what was said: no command is called like the mark, of which it complains."""
        self.marks += 1
        mark = f"mark{self.marks}"
        self.say(mark)
        self.child.stdin.flush()
        lines = []
        for line in self.child.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            if text.endswith(mark):
                return lines
            lines.append(text)
        raise RuntimeError("tofino_test_harness has ended: " + "\n".join(lines))

    def packet(self, port, frame):
        """Frames that come out: (port, frame)."""
        self.say(f"packet {port} {frame.hex()}")
        self.say("wait")
        frames, at = [], None
        for line in self.hear():
            if "packet output on port " in line:
                at = (int(line.rsplit("packet output on port ", 1)[1].split(":")[0].split()[0]), bytearray())
                frames.append(at)
            elif at and len(line) > 4 and is_offset(line[:4], len(at[1])):
                at[1].extend(bytes.fromhex(line[4:4 + 1 + 16 * 3 + 1].strip()))
            else:
                at = None
        return [(port, bytes(data)) for port, data in frames]

    def complaints(self):
        # What has more than 64 bits is tried as part of the entry first, where it does not fit, and then as action data.
        return [line for line in self.hear() if line.startswith("<stdin>:") and "out of range for 64 bits" not in line]

    def counters(self, places):
        """What is in these, by (name, index).  Of each it says what is read, which is nothing, and what is in its memory."""
        for name, index in places:
            self.say(f"check_counter {short(name)}({index})")
        found, at = dict.fromkeys(places, 0), None
        for line in self.hear():
            if "(virtual " in line:
                at = line.split("(virtual ")[0].split()[-1], int(line.split("(virtual ")[1].split(")")[0])
            elif at and "(physical " in line and "packets=" in line:
                found["pipe." + at[0], at[1]] += int(line.split("packets=")[1].split()[0])
        return found

    def end(self):
        self.child.kill()
        self.child.wait()


def is_offset(text, expected):
    try:
        return int(text, 16) == expected
    except ValueError:
        return False


class Generator:
    """The packet generator: what makes packets for a port without a cable.  One packet takes the model a millisecond or more, so
    that only those come that find a descriptor of a job, one after the other, and seldom."""

    ROUND = 0.1  # seconds, from the first to the first

    def __init__(self):
        self.buffers, self.applications, self.ports = {}, {}, set()
        self.round, self.next = iter(()), 0

    def write(self, name, key, said):
        kind = name.rsplit(".", 1)[-1]
        if kind == "pkt_buffer":
            self.buffers[key["pkt_buffer_offset"]] = said[1]["buffer"].to_bytes(key["pkt_buffer_size"], "big")
        elif kind == "app_cfg":
            self.applications.setdefault(key["app_id"], {}).update(said[1])
        elif said[1]["pktgen_enable"]:
            self.ports.add(key["dev_port"])

    def packet(self, entries):
        """(port, frame); None until it is time for another round."""
        packet = next(self.round, None)
        if not packet and time.monotonic() >= self.next:
            self.next = time.monotonic() + self.ROUND
            self.round = self.packets(entries)
        return packet

    def packets(self, entries):
        """Those of one round."""
        places = sorted({said[1]["descriptor"] | version for (name, _), said in entries.items() if name.endswith(".positions")
                         for version in (0, 1)})
        for number, said in self.applications.items():
            if not said["app_enable"] or said["pipe_local_source_port"] not in self.ports:
                continue
            frame = self.buffers[said["pkt_buffer_offset"]][:said["pkt_len"]]
            for place in places:
                assert place <= said["packets_per_batch_cfg"], f"descriptor {place} is not visited"
                yield said["pipe_local_source_port"], bytes([number, 0, 0, 0]) + place.to_bytes(2, "big") + frame


class Model:
    """What is in the tables, and a harness that has that."""

    SETTLED = 0.3  # seconds without a change: to start anew takes longer, and an agent changes many entries in a row

    def __init__(self, compiled, schema):
        self.compiled, self.schema = compiled, schema
        self.entries, self.defaults, self.groups, self.nodes = {}, {}, {}, {}
        self.generator = Generator()
        self.counted = {}  # by the models before, and less what was cleared
        self.harness = Harness(compiled)
        self.is_old, self.written = False, 0

    def is_settled(self):
        return not self.is_old or time.monotonic() > self.written + self.SETTLED

    def ready(self):
        """The harness, as the tables are now."""
        if self.is_old:
            self.counted = self.count(self.counted)
            self.harness.end()
            self.harness = Harness(self.compiled)
            for name, said in self.defaults.items():
                self.say_default(name, said)
            for (name, key), said in self.entries.items():
                self.say_entry(name, key, said)
            for group in self.groups:
                self.say_group(group)
            self.is_old = False
        return self.harness

    def say_default(self, name, said):
        self.harness.say(f"setdefault {short(name)} {call(said)}")

    def say_entry(self, name, key, said):
        self.harness.say(f"add {short(name)} 0 {' '.join(f'{field}:{value:#x}' for field, value in key)} {call(said)}")

    def say_group(self, group):
        copies = [self.nodes[node] for node in self.groups[group] if node in self.nodes]
        self.harness.say(f"multicast {group} " + " ".join(f"{rid}:{port}" for rid, ports in copies for port in ports))

    def need_no_complaint(self):
        if complaints := self.harness.complaints():
            raise Refused(INVALID, "; ".join(complaints))

    def count(self, places):
        return {place: packets + self.counted.get(place, 0) for place, packets in self.harness.counters(list(places)).items()}

    def write(self, kind, name, key, said, takes_away):
        self.written = time.monotonic()
        if name == "$pre.node":
            self.write_row(kind, self.nodes, key["$MULTICAST_NODE_ID"],
                           said and (said[1]["$MULTICAST_RID"], said[1]["$DEV_PORT"]))
        elif name == "$pre.mgid":
            group = key["$MGID"]
            nodes = said[1]["$MULTICAST_NODE_ID"] if said else []
            if kind == pb.Update.MODIFY_INC:
                now = self.groups.get(group, [])
                nodes = [node for node in now if node not in nodes] if takes_away else now + nodes
            self.write_row(kind, self.groups, group, nodes)
            if kind == pb.Update.DELETE:
                self.is_old = True
            elif not self.is_old:
                self.say_group(group)
        elif ".pktgen." in name:
            self.generator.write(name, key, said)
        elif self.schema.by_name[name]["table_type"] == "Register":
            self.is_old = True  # with zeros only
            if said and any(said[1].values()):
                raise Refused(INVALID, "a model's registers become zeros or stay as they are")
        else:
            self.write_entry(kind, name, key, said)
        if not self.is_old:
            self.need_no_complaint()

    def write_row(self, kind, rows, key, row):
        need(kind, key in rows, key)
        if kind == pb.Update.DELETE:
            del rows[key]
        else:
            rows[key] = row

    def write_entry(self, kind, name, key, said):
        if kind == pb.Update.DELETE and not key:  # all of them
            gone = [place for place in self.entries if place[0] == name]
            self.is_old |= bool(gone)
            self.entries = {place: entry for place, entry in self.entries.items() if place not in gone}
            return
        place = (name, tuple(key.items()))
        self.write_row(kind, self.entries, place, said)
        if kind == pb.Update.INSERT and not self.is_old:
            self.say_entry(*place, said)
        else:
            self.is_old = True

    def clear_counters(self, places):
        for place, packets in self.count(places).items():
            self.counted[place] = self.counted.get(place, 0) - packets

    def write_default(self, name, said):
        self.is_old |= name in self.defaults
        self.defaults[name] = said
        if not self.is_old:
            self.say_default(name, said)
            self.need_no_complaint()


def need(kind, is_there, key):
    if kind == pb.Update.INSERT and is_there:
        raise Refused(EXISTS, f"{key} is there already")
    if kind != pb.Update.INSERT and not is_there:
        raise Refused(NOT_FOUND, f"{key} is not there")


def short(name):
    return name.removeprefix("pipe.")


def call(said):
    action, parameters = said
    return f"{action.rsplit('.', 1)[-1]}({', '.join(f'{name}:{value:#x}' for name, value in parameters.items())})"


class Server(bfruntime_pb2_grpc.BfRuntimeServicer):
    def __init__(self, program, schema_text, schema, model, ports, lock):
        self.program, self.schema_text, self.schema, self.model = program, schema_text, schema, model
        self.ports, self.lock = ports, lock
        self.owner = None  # the client that has bound the program

    def StreamChannel(self, requests, context):
        for request in requests:
            if request.WhichOneof("update") == "subscribe":
                client = request.client_id
                context.add_callback(lambda: self.forget(client))
                answer = pb.StreamMessageResponse()
                answer.subscribe.CopyFrom(request.subscribe)
                yield answer

    def forget(self, client):
        """The client's connection has ended."""
        self.owner = None if self.owner == client else self.owner

    def SetForwardingPipelineConfig(self, request, context):
        if [config.p4_name for config in request.config] != [self.program]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such program")
        if self.owner not in (None, request.client_id):
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"client {self.owner} has it already")
        self.owner = request.client_id
        return pb.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request, context):
        answer = pb.GetForwardingPipelineConfigResponse()
        answer.config.add(p4_name=self.program, bfruntime_info=self.schema_text)
        answer.non_p4_config.bfruntime_info = json.dumps(OTHERS).encode()
        return answer

    def Write(self, request, context):
        counters = [update.entity.table_entry for update in request.updates if self.is_counter(update.entity.table_entry)]
        with self.lock:
            try:
                self.model.clear_counters([place for entry in counters for place in self.places(entry)])
                for update in request.updates:
                    if not self.is_counter(update.entity.table_entry):
                        self.write(update)
            except Refused as refused:
                refuse(context, refused)
        return pb.WriteResponse()

    def is_counter(self, entry):
        return self.schema.tables[entry.table_id]["table_type"] == "Counter"

    def places(self, entry):
        """Of counters: the one that is named, or all that were ever asked for."""
        name, key = self.schema.name(entry.table_id), self.schema.key(entry.table_id, entry.key)
        return [(name, key["$COUNTER_INDEX"])] if key else [place for place in self.model.counted if place[0] == name]

    def write(self, update):
        entry = update.entity.table_entry
        name = self.schema.name(entry.table_id)
        said = self.schema.data(entry.table_id, entry.data) if entry.HasField("data") else None
        if entry.is_default_entry:
            self.model.write_default(name, said)
        else:
            takes_away = entry.table_mod_inc_flag.type == pb.TableModIncFlag.MOD_INC_DELETE
            self.model.write(update.type, name, self.schema.key(entry.table_id, entry.key), said, takes_away)

    def Read(self, request, context):
        answer = pb.ReadResponse()
        entries = [entity.table_entry for entity in request.entities]
        name = self.schema.name(entries[0].table_id)
        if name == "$pre.node":
            yield self.all_nodes(entries[0].table_id)
            return
        if self.schema.tables[entries[0].table_id]["table_type"] == "Register":
            return  # nobody can read them here
        with self.lock:
            self.model.ready()
            counted = self.model.count([place for entry in entries if self.is_counter(entry) for place in self.places(entry)])
            self.model.counted = {**dict.fromkeys(counted, 0), **self.model.counted}
            try:
                for entry in entries:
                    self.read(entry, counted, answer.entities.add().table_entry)
            except Refused as refused:
                refuse(context, refused)
        yield answer

    def all_nodes(self, table):
        answer = pb.ReadResponse()
        for node in self.model.nodes:
            entry = answer.entities.add().table_entry
            entry.table_id = table
            entry.key.fields.add(field_id=1).exact.value = node.to_bytes(4, "big")
        return answer

    def read(self, asked, counted, found):
        name, key = self.schema.name(asked.table_id), self.schema.key(asked.table_id, asked.key)
        found.table_id = asked.table_id
        found.key.CopyFrom(asked.key)
        data = found.data.fields.add(field_id=1)
        if name.endswith(".device_configuration"):
            data.stream = (1).to_bytes(4, "big")
            found.is_default_entry = True
        elif name == "$PORT":
            if key["$DEV_PORT"] not in self.ports:
                raise Refused(NOT_FOUND, "no such port")
            data.bool_val = True
        elif name == "$pre.mgid":
            if key["$MGID"] not in self.model.groups:
                raise Refused(NOT_FOUND, "no such group")
            data.int_arr_val.val.extend(self.model.groups[key["$MGID"]])
        else:
            data.field_id = next(f["singleton"]["id"] for f in self.schema.tables[asked.table_id]["data"]
                                 if f["singleton"]["name"] == "$COUNTER_SPEC_PKTS")
            data.stream = counted[name, key["$COUNTER_INDEX"]].to_bytes(8, "big")


def refuse(context, refused):
    """As bf_switchd: what is wrong with which entry is in the details of an UNKNOWN error."""
    from google.protobuf import any_pb2
    from google.rpc import status_pb2
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0])
    detail = any_pb2.Any()
    detail.Pack(pb.Error(canonical_code=refused.code, message=str(refused)))
    status.details.append(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, "")


def port_socket(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.bind((interface, 0))
    sock.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
    return sock


def carry(model, ports, lock, loss):
    """Frames through the model, one after the other, until this program ends."""
    chance = random.Random(1)
    numbers = {sock.fileno(): number for number, sock in ports.items()}
    poll = select.poll()
    for fd in numbers:
        poll.register(fd, select.POLLIN)
    def exchange(port, frame):
        while True:
            with lock:
                if model.is_settled():
                    out = model.ready().packet(port, frame)
                    break
            time.sleep(Model.SETTLED / 10)
        for port, data in out:
            if port in ports:
                ports[port].send(data)

    while True:
        tick = model.generator.packet(model.entries)
        for fd, _ in poll.poll(0 if tick else 1000 * Generator.ROUND):
            frame = ports[numbers[fd]].recv(4096)
            if chance.random() >= loss:
                exchange(numbers[fd], frame)
        if tick:
            exchange(*tick)


def main():
    compiled, schema_file, address, loss, *pairs = sys.argv[1:]
    ports = {int(number): port_socket(interface) for number, interface in (pair.split("=") for pair in pairs)}
    with open(schema_file, "rb") as file:
        schema_text = file.read()
    schema = Schema(json.loads(schema_text), OTHERS)
    model, lock = Model(compiled, schema), threading.Lock()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    bfruntime_pb2_grpc.add_BfRuntimeServicer_to_server(Server("inagg", schema_text, schema, model, ports, lock), server)
    server.add_insecure_port(address)
    server.start()
    print("ready", flush=True)
    carry(model, ports, lock, float(loss))


if __name__ == "__main__":
    main()
