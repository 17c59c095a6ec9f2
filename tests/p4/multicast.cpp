// SPDX-License-Identifier: BSD-2-Clause
// A command for tofino_test_harness, which comes with the source of Tofino's model and cannot write multicast groups: the chip's
// replication engine gets a node for each copy, with its ports behind it.  It is compiled there (docs/P4-tofino.md).
//
//     multicast GROUP RID:PORT ...        ports of pipe 0; no copies: the group is empty
#include <mau.h>
#include <model_core/model.h>
#include <packet-replication-engine.h>
#include <rdm.h>
#include <register_utils.h>
#include <rmt-object-manager.h>

#include "script.h"
#include "write.h"

#include <cstdint>
#include <cstdio>
#include <memory>

using namespace MODEL_CHIP_NAMESPACE;

extern std::unique_ptr<model_core::Model> GLOBAL_MODEL;

namespace {

// Nodes take a line each, and are never freed; their address counts half lines.
uint32_t add_line(RmtObjectManager *chip, const Rdm::RdmLine &line) {
    static int next = 1; // 0 ends a list
    chip->rdm_get()->write_line(next, line);
    return 2u * static_cast<uint32_t>(next++);
}

uint32_t add_copy(RmtObjectManager *chip, uint32_t behind, int rid, int port) {
    Rdm::RdmLine ports, node;
    ports.type[0] = RdmDefs::RdmNodeType::kL2Port64;
    ports.type[1] = RdmDefs::RdmNodeType::kInvalid;
    const uint64_t bit = UINT64_C(1) << port % 64;
    ports.u.L2Port64 = {0, 0, true, static_cast<uint8_t>(port < 64 ? 0 : bit), port < 64 ? bit : 0};
    node.type[0] = RdmDefs::RdmNodeType::kL1Rid;
    node.type[1] = RdmDefs::RdmNodeType::kInvalid;
    node.u.L1Rid = {behind, add_line(chip, ports), static_cast<uint16_t>(rid), false};
    return add_line(chip, node);
}

// The deparser knows in which pipes a group has copies: 4 bits each, 8 groups a word, half as many groups as there are.
void write_pipes(int group, uint32_t pipes) {
    volatile uint32_t *word = &RegisterUtils::addr_dprsr(0)->hdr.him.hi_pv_table.tbl0[group % 0x8000 / 8];
    const int shift = group % 8 * 4;
    write_reg(0, word, (read_reg(0, word) & ~(0xfu << shift)) | pipes << shift);
}

} // namespace

ScriptCommand(multicast, "<group> {<rid>:<port>}") {
    int group, length, rid, port;
    if (std::sscanf(args, "%i %n", &group, &length) < 1) {
        error("usage: multicast <group> {<rid>:<port>}");
        return;
    }
    args += length;
    RmtObjectManager *chip = nullptr;
    GLOBAL_MODEL->GetObjectManager(0, &chip);
    uint32_t first = 0;
    for (; std::sscanf(args, "%i:%i %n", &rid, &port, &length) >= 2 && port >= 0 && port < 72; args += length)
        first = add_copy(chip, first, rid, port);
    if (*args)
        error("multicast: not a copy: %s", args);
    chip->pre_get(0)->mit(group, first);
    write_pipes(group, first ? 1 : 0);
}
