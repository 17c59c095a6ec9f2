# SPDX-License-Identifier: BSD-2-Clause
"""Stands in for BF Runtime's Python client: the part of it that inagg-bfrt uses, with a server in memory.

The server's tables are those of the file that BFRT_TABLES names, {name: {"size", "key", "actions", "data", "entries", "members"}}; after each change they
are written to the file of BFRT_STATE, {name: {key: [action, data]}}.  As with the real server an entry is added once, and only one
that is there is changed, read or deleted.
"""

import json
import os
from types import SimpleNamespace


class BfruntimeRpcException(Exception):
    """As the real one, without a text of its own."""

    def __init__(self, code):
        super().__init__()
        text = {NOT_FOUND: "not found", EXISTS: "already exists", FULL: "no space"}[code]
        self.errors = [(0, SimpleNamespace(canonical_code=code, message=text))]

    def sub_errors_get(self):
        return self.errors


NOT_FOUND, EXISTS, FULL = 5, 6, 8
bfruntime_pb2 = SimpleNamespace(TableModIncFlag=SimpleNamespace(MOD_INC_ADD=0, MOD_INC_DELETE=1))


class Target:
    def __init__(self, device_id, pipe_id):
        assert (device_id, pipe_id) == (0, 0xffff)


class KeyTuple:
    def __init__(self, name, value):
        assert isinstance(value, int), value
        self.name, self.value = name, value


class DataTuple:
    def __init__(self, name, val=None, **others):
        self.name, self.value = name, val if val is not None else next(iter(others.values()), None)
        self.value = list(self.value) if isinstance(self.value, bytearray) else self.value


class Row:
    def __init__(self, fields):
        self.fields = fields

    def to_dict(self):
        return self.fields


class Table:
    def __init__(self, server, name, said):
        self.server, self.name, self.said = server, name, said
        self.entries = {tuple(json.loads(key)): row for key, row in said.get("entries", {}).items()}
        self.default = None
        self.info = SimpleNamespace(size_get=lambda: said["size"], key_field_name_list_get=lambda: list(said["key"]),
                                    data_field_name_list_get=lambda: list(said.get("data", {})))

    def make_key(self, fields):
        names = [field.name for field in fields]
        assert names == list(self.said["key"]), f"{self.name}: {names}"
        for field in fields:
            assert 0 <= field.value < 1 << self.said["key"][field.name], f"{self.name}: {field.name} {field.value:#x}"
        return tuple(field.value for field in fields)

    def make_data(self, fields=(), action=None, get=False):
        known = self.said["actions"][action] if action and "actions" in self.said else self.said["data"]
        names = {field.name for field in fields}
        assert names <= set(known) and (get or not action or names == set(known)), f"{self.name}: {action} {names ^ set(known)}"
        return [action, {field.name: field.value for field in fields}]

    def entry_add(self, target, keys, rows):
        for key, row in zip(keys, rows, strict=True):
            self.need(key not in self.entries, EXISTS)
            self.need(len(self.entries) < self.said["size"], FULL)
            self.entries[key] = row
        self.server.save()

    def entry_mod(self, target, keys, rows):
        for key, row in zip(keys, rows, strict=True):
            self.need(key in self.entries or self.is_array(), NOT_FOUND)
            if self.name.startswith("pktgen."):  # what is not said stays as it was
                row = [row[0], {**self.entries.get(key, [None, {}])[1], **row[1]}]
            self.entries[key] = row
        self.server.save()

    def entry_mod_inc(self, target, keys, rows, kind):
        for key, (_, change) in zip(keys, rows, strict=True):
            self.need(key in self.entries, NOT_FOUND)
            now = self.entries[key][1]
            place = now["$MULTICAST_NODE_ID"].index(change["$MULTICAST_NODE_ID"][0]) if kind else None
            self.need(kind or len(now["$MULTICAST_NODE_ID"]) < self.said.get("members", 1 << 16), FULL)
            for name, values in change.items():
                now[name] = now[name][:place] + now[name][place + 1:] if kind else now[name] + values
        self.server.save()

    def entry_del(self, target, keys=None):
        for key in self.entries.copy() if keys is None else keys:
            self.need(key in self.entries, NOT_FOUND)
            del self.entries[key]
        self.server.save()

    def entry_get(self, target, keys, flags, wanted=None):
        for key in self.entries if keys is None else keys:
            self.need(key in self.entries or self.is_array(), NOT_FOUND)
            row = self.entries.get(key, [None, dict.fromkeys(self.said["data"], 0)])
            data = {name: value if isinstance(value, list) or "$REGISTER_INDEX" not in self.said["key"] else [value]
                    for name, value in row[1].items()}  # a register's are by pipeline
            yield Row(data), Row({name: {"value": value} for name, value in zip(self.said["key"], key)})

    def default_entry_get(self, target):
        yield (Row(self.said["default"]),)

    def default_entry_set(self, target, row):
        self.default = row
        self.server.save()

    def is_array(self):
        """A register or counters: all entries are there."""
        return "actions" not in self.said and not self.name.startswith("$")

    def need(self, holds, code):
        if not holds:
            raise BfruntimeRpcException(code)


class Server:
    def __init__(self):
        with open(os.environ["BFRT_TABLES"]) as file:
            self.tables = {name: Table(self, name, said) for name, said in json.load(file).items()}
        self.tables["$PORT"].entries = {(port,): [None, {"$PORT_UP": port != 2}] for port in (1, 2)}

    def save(self):
        state = {name: {str(list(key)): row for key, row in table.entries.items()} for name, table in self.tables.items()}
        for name, table in self.tables.items():
            if table.default:
                state[name]["default"] = table.default
        with open(os.environ["BFRT_STATE"], "w") as file:
            json.dump(state, file)

    def p4_name_get(self):
        return "a program"

    def table_name_list_get(self):
        return [name if name.startswith("$") else "pipe." + name for name in self.tables]

    def table_get(self, name):
        return self.tables[name.removeprefix("pipe.")]


class ClientInterface:
    def __init__(self, address, client_id, device_id):
        if address != "there:50052":
            raise RuntimeError("Failed to subscribe to server")
        self.server = Server()

    def bfrt_info_get(self):
        return self.server

    def bind_pipeline_config(self, name):
        assert name == self.server.p4_name_get()
