// SPDX-License-Identifier: BSD-2-Clause
// core/linear_check.h for the blocks of one communicator.
#pragma once

#include "transport.hpp"

#include <inagg/core/linear_check.h>

#include <array>
#include <span>
#include <string_view>
#include <vector>

namespace inagg {

class LinearCheck {
public:
    using Key = std::array<unsigned char, INAGG_KEY_BYTES>;

    // `hex`: 32 digits, the key of all ranks. Throws INAGG_EINVAL.
    static Key parse_key(std::string_view hex, std::string_view name = "the key");

    LinearCheck(const Key &key, const JobConfig &job);
    ~LinearCheck();
    LinearCheck(const LinearCheck &) = delete;
    LinearCheck &operator=(const LinearCheck &) = delete;

    // From here on, with all ranks' nonces: INAGG_CHECK_NONCE_WORDS of each.
    void begin(std::span<const uint32_t> nonces);
    bool has_begun() const { return begun_; }
    void end() { begun_ = false; }

    void seal(const inagg_check_block &block, const BlockMeta &meta, std::byte *payload, uint32_t fits) const {
        inagg_check_seal(&check_, &block, &meta, payload, fits);
    }
    bool holds(const inagg_check_block &block, BlockMeta &meta, const std::byte *payload, inagg_check_scale scale) const {
        return inagg_check_holds(&check_, &block, &meta, payload, scale);
    }

private:
    const uint16_t job_;
    inagg_mac_key key_; // of all runs
    std::vector<uint32_t> weights_;
    inagg_check check_; // of this one
    bool begun_ = false;
};

} // namespace inagg
