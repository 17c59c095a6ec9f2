// SPDX-License-Identifier: BSD-2-Clause
// Flips bits of what the first job's slots hold, some thousand a second: saboteur PINNED_MAP SECONDS. By a BPF program,
// as nobody else can change a word of a slot and leave the rest to the switch.
#include "switch_maps.h"

#include <bpf/bpf.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int slots = 256, words = 256; // powers of two: 128 slots in two versions, most of their elements

bpf_insn insn(unsigned code, unsigned to = 0, unsigned from = 0, int off = 0, int imm = 0) {
    bpf_insn i{};
    i.code = static_cast<__u8>(code);
    i.dst_reg = static_cast<__u8>(to & 0xf);
    i.src_reg = static_cast<__u8>(from & 0xf);
    i.off = static_cast<__s16>(off);
    i.imm = imm;
    return i;
}

// A random number below `limit`, a power of two, to `to`.
void random_below(std::vector<bpf_insn> &program, unsigned to, int limit) {
    program.push_back(insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_prandom_u32));
    program.push_back(insn(BPF_ALU64 | BPF_MOV | BPF_X, to, BPF_REG_0));
    program.push_back(insn(BPF_ALU64 | BPF_AND | BPF_K, to, 0, 0, limit - 1));
}

int load_flip(int map) {
    std::vector<bpf_insn> program;
    random_below(program, BPF_REG_6, slots);
    random_below(program, BPF_REG_7, words);
    random_below(program, BPF_REG_8, 32);
    program.push_back(insn(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, BPF_REG_6, -4));
    program.push_back(insn(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10));
    program.push_back(insn(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4));
    program.push_back(insn(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map));
    program.push_back(insn(0));
    program.push_back(insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem));
    program.push_back(insn(BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 5, 0)); // to the end
    program.push_back(insn(BPF_ALU64 | BPF_LSH | BPF_K, BPF_REG_7, 0, 0, 2));
    program.push_back(insn(BPF_ALU64 | BPF_ADD | BPF_X, BPF_REG_0, BPF_REG_7));
    program.push_back(insn(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_1, 0, 0, 1));
    program.push_back(insn(BPF_ALU64 | BPF_LSH | BPF_X, BPF_REG_1, BPF_REG_8));
    program.push_back(insn(BPF_STX | BPF_ATOMIC | BPF_W, BPF_REG_0, BPF_REG_1, offsetof(inagg_slot_memory, lanes), BPF_XOR));
    program.push_back(insn(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS));
    program.push_back(insn(BPF_JMP | BPF_EXIT));
    return bpf_prog_load(BPF_PROG_TYPE_XDP, "saboteur", "GPL", program.data(), program.size(), nullptr);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: saboteur PINNED_MAP SECONDS\n");
        return 2;
    }
    const int map = bpf_obj_get(argv[1]);
    if (map < 0) {
        std::perror(argv[1]);
        return 1;
    }
    const int program = load_flip(map);
    if (program < 0) {
        std::perror("saboteur: loading");
        return 1;
    }
    char frame[64] = {};
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(argv[2]));
    while (std::chrono::steady_clock::now() < until) {
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame), .repeat = 100);
        if (bpf_prog_test_run_opts(program, &options)) {
            std::perror("saboteur: running");
            return 1;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}
