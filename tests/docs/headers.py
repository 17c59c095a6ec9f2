# SPDX-License-Identifier: BSD-2-Clause
"""What wire.h and reason.h say, for the tests that compare others with them."""

import re

SIZES = {"__u8": 1, "__u16": 2, "__be16": 2, "sa_family_t": 2, "__kernel_sa_family_t": 2, "__u32": 4, "__be32": 4, "__be64": 8}


def struct_fields(source, name):
    """[(offset, bytes, field)] of a struct whose members need no padding; of a union its first member."""
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", source, re.S).group(1)
    body = re.sub(r"\n\t\tstruct \{.*?\n\t\t\} \w+;", "", body, flags=re.S)
    fields, offset = [], 0
    for kind, field, length in re.findall(r"^\s+(\w+)\s+(\w+)(?:\[(\d+)\])?;", body, re.M):
        size = SIZES[kind] * int(length or 1)
        fields.append((offset, size, field))
        offset += size
    return fields


def enum_values(source, name, prefix):
    """[(number, name)] of an enumeration; `1 << n` counts as n. Its closing count is left out."""
    body = re.search(rf"enum {name} \{{(.*?)\n\}};", source, re.S).group(1)
    return [(int(bit or number), label)
            for label, number, bit in re.findall(rf"^\t{prefix}(\w+)\s*=\s*(\d+)(?: << (\d+))?,", body, re.M)]


def reasons(source):
    """[(number, name, text)] of reason.h."""
    return [(int(number), name, text) for number, name, text in re.findall(r'X\((\d+), (\w+), "([^"]+)"\)', source)]


def algorithms(source):
    """[(number, name)] of enum inagg_algorithm. Its closing count is left out."""
    body = re.search(r"enum inagg_algorithm \{(.*?)\n\};", source, re.S).group(1)
    return list(enumerate(re.findall(r"^\tINAGG_(\w+)", body, re.M)[:-1]))
