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
    // Of each rank, before the first block is sealed: so a key never makes the same masks twice.
    static constexpr std::size_t nonce_words = 4;
    using Key = std::array<unsigned char, 16>;

    // `hex`: 32 digits, the key of all ranks. Throws INAGG_EINVAL.
    static Key parse_key(std::string_view hex);

    LinearCheck(const Key &key, const JobConfig &job);
    ~LinearCheck();
    LinearCheck(const LinearCheck &) = delete;
    LinearCheck &operator=(const LinearCheck &) = delete;

    // A block of the job that has or may have a check.
    struct Block {
        uint64_t call;        // number since begin()
        uint64_t context = 0; // what else the ranks agree on
        uint8_t phase = 0;    // 0: control; else which run of the call's data blocks
        uint32_t index = 0;   // in it
    };
    // What the ranks are to say about a scale.
    enum class Scale {
        none,   // there is none that they agreed on
        agreed, // it is that of some rank's largest element, and too small for none
        guessed // or it is not, and the result says so
    };

    // From here on, with all ranks' nonces.
    void begin(std::span<const uint32_t> nonces);
    bool has_begun() const { return begun_; }
    void end() { begun_ = false; }

    // Fill the end of `payload`, which is INAGG_CHECK_ELEMENTS of its elements. `fits`: INAGG_CHECK_FITS, ..., or 0.
    void seal(const Block &block, const BlockMeta &meta, std::byte *payload, uint32_t fits) const;
    // Is `payload` the sum of what meta.contributors have sealed? Then meta.saturated is true, too.
    bool holds(const Block &block, BlockMeta &meta, const std::byte *payload, Scale scale) const;

private:
    uint64_t weigh(const BlockMeta &meta, const std::byte *payload) const;
    inagg_check_tag tag_of(const Block &block, const BlockMeta &meta) const;

    const uint16_t rank_, size_;
    const uint16_t job_;
    Key key_;         // of all runs
    Key mask_key_{};  // of this one
    std::vector<uint32_t> weights_;
    bool begun_ = false;
};

} // namespace inagg
