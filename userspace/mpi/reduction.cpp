// SPDX-License-Identifier: BSD-2-Clause
#include "reduction.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

namespace inagg::mpi {

namespace {

// The elements of MPI's types, by what the standard lets operators do with them.
enum class Family {
    integer,  // C's: arithmetic and logical operators
    counting, // Fortran's, and addresses: arithmetic only
    logical,
    floating,
};

struct Element {
    Family family;
    std::size_t bytes;
    bool is_signed;
};

struct NamedType {
    MPI_Datatype type;
    Family family;
    bool is_signed;
};

std::vector<NamedType> make_named_types() {
    using enum Family;
    return {
        {MPI_SIGNED_CHAR, integer, true},
        {MPI_SHORT, integer, true},
        {MPI_INT, integer, true},
        {MPI_LONG, integer, true},
        {MPI_LONG_LONG, integer, true},
        {MPI_INT8_T, integer, true},
        {MPI_INT16_T, integer, true},
        {MPI_INT32_T, integer, true},
        {MPI_INT64_T, integer, true},
        {MPI_UNSIGNED_CHAR, integer, false},
        {MPI_UNSIGNED_SHORT, integer, false},
        {MPI_UNSIGNED, integer, false},
        {MPI_UNSIGNED_LONG, integer, false},
        {MPI_UNSIGNED_LONG_LONG, integer, false},
        {MPI_UINT8_T, integer, false},
        {MPI_UINT16_T, integer, false},
        {MPI_UINT32_T, integer, false},
        {MPI_UINT64_T, integer, false},
        {MPI_AINT, counting, true},
        {MPI_OFFSET, counting, true},
        {MPI_COUNT, counting, true},
        {MPI_INTEGER, counting, true},
        {MPI_INTEGER1, counting, true},
        {MPI_INTEGER2, counting, true},
        {MPI_INTEGER4, counting, true},
        {MPI_INTEGER8, counting, true},
        {MPI_C_BOOL, logical, false},
        {MPI_CXX_BOOL, logical, false},
        {MPI_FLOAT, floating, true},
        {MPI_DOUBLE, floating, true},
        {MPI_REAL, floating, true},
        {MPI_REAL4, floating, true},
        {MPI_REAL8, floating, true},
        {MPI_DOUBLE_PRECISION, floating, true},
    };
}

std::optional<Element> element_of(MPI_Datatype type) {
    static const std::vector<NamedType> types = make_named_types();
    const auto found = std::ranges::find(types, type, &NamedType::type);
    if (found == types.end() || type == MPI_DATATYPE_NULL)
        return std::nullopt;
    int bytes;
    PMPI_Type_size(type, &bytes);
    return Element{found->family, static_cast<std::size_t>(bytes), found->is_signed};
}

enum class Logic { none, all, any, parity };

struct Operator {
    inagg_op op;
    Logic logic;
};

std::optional<Operator> operator_of(MPI_Op op) {
    const std::pair<MPI_Op, Operator> operators[] = {{MPI_SUM, {INAGG_SUM, Logic::none}}, {MPI_MIN, {INAGG_MIN, Logic::none}},
                                                     {MPI_MAX, {INAGG_MAX, Logic::none}}, {MPI_LAND, {INAGG_MIN, Logic::all}},
                                                     {MPI_LOR, {INAGG_MAX, Logic::any}},  {MPI_LXOR, {INAGG_SUM, Logic::parity}}};
    const auto found = std::ranges::find(operators, op, &std::pair<MPI_Op, Operator>::first);
    return found == std::end(operators) ? std::nullopt : std::optional(found->second);
}

Reason name_of(MPI_Op op) {
    const std::pair<MPI_Op, const char *> names[] = {
        {MPI_SUM, "MPI_SUM"}, {MPI_MIN, "MPI_MIN"},   {MPI_MAX, "MPI_MAX"},       {MPI_LAND, "MPI_LAND"},
        {MPI_LOR, "MPI_LOR"}, {MPI_LXOR, "MPI_LXOR"}, {MPI_PROD, "MPI_PROD"},     {MPI_BAND, "MPI_BAND"},
        {MPI_BOR, "MPI_BOR"}, {MPI_BXOR, "MPI_BXOR"}, {MPI_MINLOC, "MPI_MINLOC"}, {MPI_MAXLOC, "MPI_MAXLOC"}};
    const auto found = std::ranges::find(names, op, &std::pair<MPI_Op, const char *>::first);
    return found == std::end(names) ? "user's operator" : found->second;
}

Reason name_of(MPI_Datatype type) {
    if (type == MPI_DATATYPE_NULL)
        return "no type";
    int integers, addresses, types, combiner, length;
    char name[MPI_MAX_OBJECT_NAME];
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    PMPI_Type_get_name(type, name, &length);
    return combiner == MPI_COMBINER_NAMED && length ? name : "derived type";
}

// Loops over elements of any alignment: memory may be packed.
template <typename From, typename To, typename Convert> void convert(const void *from, void *to, std::size_t count, Convert one) {
    for (std::size_t i = 0; i < count; i++) {
        From x;
        std::memcpy(&x, static_cast<const std::byte *>(from) + i * sizeof(x), sizeof(x));
        const To y = one(x);
        std::memcpy(static_cast<std::byte *>(to) + i * sizeof(y), &y, sizeof(y));
    }
}

// In a wider type; an integer sum wraps when it is cut back.
template <typename Memory, typename Wire> struct Widened {
    static void encode(const void *from, void *to, std::size_t count) {
        convert<Memory, Wire>(from, to, count, [](Memory x) { return static_cast<Wire>(x); });
    }
    static void decode(const void *from, void *to, std::size_t count) {
        convert<Wire, Memory>(from, to, count, [](Wire x) { return static_cast<Memory>(x); });
    }
};

// Unsigned numbers as signed ones of the same order.
template <typename Memory> struct Biased {
    static constexpr Memory middle = Memory{1} << (std::numeric_limits<Memory>::digits - 1);
    static void encode(const void *from, void *to, std::size_t count) {
        convert<Memory, Memory>(from, to, count, [](Memory x) { return x ^ middle; });
    }
    static constexpr auto decode = encode;
};

// As 0 and 1.
template <typename Memory> struct Truth {
    static void encode(const void *from, void *to, std::size_t count) {
        convert<Memory, int32_t>(from, to, count, [](Memory x) { return int32_t{x != 0}; });
    }
    static void decode(const void *from, void *to, std::size_t count) {
        convert<int32_t, Memory>(from, to, count, [](int32_t x) { return static_cast<Memory>(x & 1); });
    }
};

template <typename Codec> Travel coded(inagg_dtype dtype, inagg_op op, std::size_t bytes) {
    return {dtype, op, bytes, Codec::encode, Codec::decode};
}

// `verified`: sums of int32 must not wrap then.
template <typename Memory> Travel integers(const Operator &op, bool verified) {
    constexpr std::size_t bytes = sizeof(Memory);
    constexpr inagg_dtype same = bytes == 8 ? INAGG_INT64 : INAGG_INT32;
    if (op.logic != Logic::none)
        return coded<Truth<Memory>>(INAGG_INT32, op.op, bytes);
    if constexpr (bytes == 4)
        if (verified)
            return coded<Widened<Memory, int64_t>>(INAGG_INT64, op.op, bytes);
    if constexpr (bytes < 4)
        return coded<Widened<Memory, int32_t>>(INAGG_INT32, op.op, bytes);
    else if constexpr (std::is_unsigned_v<Memory>)
        if (op.op != INAGG_SUM)
            return coded<Biased<Memory>>(same, op.op, bytes);
    return {same, op.op, bytes, nullptr, nullptr};
}

std::optional<Travel> integers(const Element &element, const Operator &op, bool verified) {
    switch (element.bytes) {
    case 1:
        return element.is_signed ? integers<int8_t>(op, verified) : integers<uint8_t>(op, verified);
    case 2:
        return element.is_signed ? integers<int16_t>(op, verified) : integers<uint16_t>(op, verified);
    case 4:
        return element.is_signed ? integers<int32_t>(op, verified) : integers<uint32_t>(op, verified);
    case 8:
        return element.is_signed ? integers<int64_t>(op, verified) : integers<uint64_t>(op, verified);
    default:
        return std::nullopt;
    }
}

std::optional<Travel> floats(const Element &element, const Operator &op, FloatSums sums) {
    if (element.bytes == sizeof(double))
        return Travel{INAGG_FLOAT64, op.op, sizeof(double), nullptr, nullptr};
    if (element.bytes != sizeof(float))
        return std::nullopt;
    if (op.op == INAGG_SUM && sums == FloatSums::exact)
        return coded<Widened<float, double>>(INAGG_FLOAT64, op.op, sizeof(float));
    return Travel{INAGG_FLOAT32, op.op, sizeof(float), nullptr, nullptr};
}

// Does the standard have this operator for the type? Else MPI says what is wrong.
bool is_defined(Family family, Logic logic) {
    switch (family) {
    case Family::integer:
        return true;
    case Family::logical:
        return logic != Logic::none;
    default:
        return logic == Logic::none;
    }
}

std::size_t wire_bytes(inagg_dtype dtype) { return dtype == INAGG_INT64 || dtype == INAGG_FLOAT64 ? 8 : 4; }

} // namespace

std::variant<Travel, Reason> travel_of(MPI_Datatype type, MPI_Op op, const Settings &settings) {
    const auto known = operator_of(op);
    if (!known)
        return name_of(op);
    if (settings.verified && known->op != INAGG_SUM)
        return name_of(op) + " with a key";
    const auto element = element_of(type);
    if (!element)
        return name_of(type);
    if (!is_defined(element->family, known->logic))
        return name_of(op) + " of " + name_of(type);
    const auto travel = element->family == Family::floating ? floats(*element, *known, settings.float_sums)
                                                            : integers(*element, *known, settings.verified);
    return travel ? std::variant<Travel, Reason>(*travel) : name_of(type);
}

Reduction::Reduction(const Travel &travel, const void *send, void *recv, std::size_t count)
    : travel_(travel), send_(send), recv_(recv), count_(count) {
    if (!travel.encode)
        return;
    coded_ = std::make_unique_for_overwrite<std::byte[]>(count * wire_bytes(travel.dtype));
    travel.encode(send, coded_.get(), count);
}

void Reduction::deliver() {
    if (coded_ && recv_)
        travel_.decode(coded_.get(), recv_, count_);
}

bool is_plain(MPI_Datatype type) {
    int integers, addresses, types, combiner, bytes;
    MPI_Aint lower, extent;
    PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    PMPI_Type_get_extent(type, &lower, &extent);
    PMPI_Type_size(type, &bytes);
    return combiner == MPI_COMBINER_NAMED && lower == 0 && extent == bytes;
}

} // namespace inagg::mpi
