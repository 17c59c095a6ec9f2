// SPDX-License-Identifier: BSD-2-Clause
// Sends COUNT frames of SIZE bytes out of INTERFACE as an XDP program would: below every qdisc and socket,
// deaf to all feedback. Their destination is nobody's address, so that a bridge floods them and no host takes
// them.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <linux/bpf.h>
#include <net/if.h>

namespace {

int load_redirect(unsigned interface) {
    const bpf_insn program[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .src_reg = 0, .off = 0, .imm = static_cast<int>(interface)},
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .src_reg = 0, .off = 0, .imm = 0},
        {.code = BPF_JMP | BPF_CALL, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = BPF_FUNC_redirect},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
    };
    return bpf_prog_load(BPF_PROG_TYPE_XDP, "flood", "GPL", program, sizeof program / sizeof *program, nullptr);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: xdp-flood INTERFACE COUNT SIZE\n");
        return 2;
    }
    std::vector<unsigned char> frame(std::strtoul(argv[3], nullptr, 10));
    const unsigned char header[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}; // local experimental Ethertype
    std::memcpy(frame.data(), header, sizeof header);
    const int program = load_redirect(if_nametoindex(argv[1]));
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = static_cast<__u32>(frame.size()),
                .repeat = std::atoi(argv[2]), .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = 64);
    if (program < 0 || bpf_prog_test_run_opts(program, &options) != 0) {
        std::perror("xdp-flood");
        return 1;
    }
}
