// SPDX-License-Identifier: BSD-2-Clause
// mpi-collectives GROUP...: MPI's collective calls beside PMPI's, which the profiling library does not see,
// on the same input; the results have to be the same bytes. Rank 0 prints what differs, and "ok" if nothing
// does.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

int failures = 0;
int world_rank, world_size;

__attribute__((format(printf, 2, 3))) void expect(bool condition, const char *format, ...) {
    if (condition)
        return;
    va_list arguments;
    va_start(arguments, format);
    std::printf("rank %d: ", world_rank);
    std::vprintf(format, arguments);
    std::printf("\n");
    va_end(arguments);
    failures++;
}

using Bytes = std::vector<unsigned char>;

struct Type {
    const char *name;
    MPI_Datatype type;
    enum { bits, reals, truths } values; // what its elements are made of
    MPI_Datatype reference = type;       // the same for PMPI
};

std::vector<Type> types() {
    return {
        {"SIGNED_CHAR", MPI_SIGNED_CHAR, Type::bits},
        {"SHORT", MPI_SHORT, Type::bits},
        {"INT", MPI_INT, Type::bits},
        {"LONG", MPI_LONG, Type::bits},
        {"LONG_LONG", MPI_LONG_LONG, Type::bits},
        {"UNSIGNED_CHAR", MPI_UNSIGNED_CHAR, Type::bits},
        {"UNSIGNED_SHORT", MPI_UNSIGNED_SHORT, Type::bits},
        {"UNSIGNED", MPI_UNSIGNED, Type::bits},
        {"UNSIGNED_LONG", MPI_UNSIGNED_LONG, Type::bits, MPI_UINT64_T}, // Open MPI 4.1 takes the signs of these wrong,
        {"UINT8_T", MPI_UINT8_T, Type::bits},
        {"INT16_T", MPI_INT16_T, Type::bits},
        {"UINT32_T", MPI_UINT32_T, Type::bits},
        {"INT64_T", MPI_INT64_T, Type::bits},
        {"UINT64_T", MPI_UINT64_T, Type::bits},
        {"AINT", MPI_AINT, Type::bits},
        {"OFFSET", MPI_OFFSET, Type::bits, MPI_INT64_T},
        {"COUNT", MPI_COUNT, Type::bits},
        {"INTEGER", MPI_INTEGER, Type::bits},
        {"INTEGER8", MPI_INTEGER8, Type::bits},
        {"C_BOOL", MPI_C_BOOL, Type::truths},
        {"FLOAT", MPI_FLOAT, Type::reals},
        {"DOUBLE", MPI_DOUBLE, Type::reals},
        {"REAL", MPI_REAL, Type::reals},
        {"DOUBLE_PRECISION", MPI_DOUBLE_PRECISION, Type::reals},
        {"LONG_DOUBLE", MPI_LONG_DOUBLE, Type::truths},
        {"BYTE", MPI_BYTE, Type::bits},
        {"2INT", MPI_2INT, Type::bits},
        {"DOUBLE_INT", MPI_DOUBLE_INT, Type::truths},
    };
}

struct Operator {
    const char *name;
    MPI_Op op;
};

std::vector<Operator> operators() {
    return {{"SUM", MPI_SUM},   {"MIN", MPI_MIN},   {"MAX", MPI_MAX},   {"LAND", MPI_LAND}, {"LOR", MPI_LOR},
            {"LXOR", MPI_LXOR}, {"PROD", MPI_PROD}, {"BAND", MPI_BAND}, {"BXOR", MPI_BXOR}, {"MAXLOC", MPI_MAXLOC}};
}

int size_of(MPI_Datatype type) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type, &lower, &extent);
    return static_cast<int>(extent);
}

// Sums of these reals are exact in any order, so that MPI's are a reference.
Bytes values(const Type &type, int count, unsigned seed) {
    const int bytes = size_of(type.type);
    Bytes memory(static_cast<std::size_t>(bytes) * count);
    std::mt19937 random(seed * 1000 + world_rank);
    for (int i = 0; i < count; i++) {
        const double real = static_cast<int>(random() % 20001 - 10000) / 16.0;
        const float narrow = static_cast<float>(real);
        unsigned char *const element = memory.data() + static_cast<std::size_t>(i) * bytes;
        if (type.values == Type::truths)
            element[0] = random() & 1;
        else if (type.values == Type::reals)
            std::memcpy(element, bytes == 8 ? static_cast<const void *>(&real) : &narrow, bytes);
        else
            for (int b = 0; b < bytes; b++)
                element[b] = (random() & 3) ? static_cast<unsigned char>(random()) : 0;
    }
    return memory;
}

// Has MPI this operator for the type, and one result whatever the order?
bool is_valid(const Type &type, const Operator &op) {
    Bytes memory(64);
    return size_of(type.type) > 0 && !(op.op == MPI_PROD && type.values == Type::reals) &&
           type.type != MPI_DOUBLE_INT && // has gaps
           PMPI_Allreduce(MPI_IN_PLACE, memory.data(), 1, type.type, op.op, MPI_COMM_SELF) == MPI_SUCCESS;
}

void check_reductions(MPI_Comm comm, const char *where, const Type &type, const Operator &op, int count) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const Bytes send = values(type, count, static_cast<unsigned>(count));
    Bytes wanted(send.size(), 1);
    PMPI_Allreduce(send.data(), wanted.data(), count, type.reference, op.op, comm);
    const auto check = [&](const char *what, const Bytes &got, const Bytes &want) {
        expect(got == want, "%s on %s: %d of MPI_%s, MPI_%s", what, where, count, type.name, op.name);
    };
    Bytes got(send.size(), 2), in_place = send;
    MPI_Allreduce(send.data(), got.data(), count, type.type, op.op, comm);
    check("Allreduce", got, wanted);
    MPI_Allreduce(MPI_IN_PLACE, in_place.data(), count, type.type, op.op, comm);
    check("Allreduce in place", in_place, wanted);
    const int root = count % size;
    got.assign(send.size(), 3);
    MPI_Reduce(send.data(), rank == root ? got.data() : nullptr, count, type.type, op.op, root, comm);
    if (rank == root)
        check("Reduce", got, wanted);
    in_place = send;
    MPI_Reduce(rank == root ? MPI_IN_PLACE : in_place.data(), in_place.data(), count, type.type, op.op, root, comm);
    check("Reduce in place", in_place, rank == root ? wanted : send);
    MPI_Request request;
    got.assign(send.size(), 4);
    MPI_Iallreduce(send.data(), got.data(), count, type.type, op.op, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("Iallreduce", got, wanted);
}

template <typename Real> MPI_Datatype type_of() { return sizeof(Real) == 4 ? MPI_FLOAT : MPI_DOUBLE; }

// The sum of all ranks' element, rounded once to double and then, if that is narrower, to @Real.
template <typename Real> Real exact_sum(const std::vector<Real> &all, int count, int element) {
    __float128 sum = 0; // has room for all digits of these
    for (int rank = 0; rank < world_size; rank++)
        sum += all[static_cast<std::size_t>(rank) * count + element];
    return static_cast<Real>(static_cast<double>(sum));
}

// What an order of additions would round: here nothing depends on one.
template <typename Real> void check_rounding() {
    constexpr int count = 3000;
    std::mt19937 random(17 + world_rank);
    std::vector<Real> send(count), got(count), all(static_cast<std::size_t>(count) * world_size);
    for (Real &number : send)
        number = std::ldexp(static_cast<Real>(static_cast<int>(random())), static_cast<int>(random() % 20));
    PMPI_Allgather(send.data(), count, type_of<Real>(), all.data(), count, type_of<Real>(), MPI_COMM_WORLD);
    MPI_Allreduce(send.data(), got.data(), count, type_of<Real>(), MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        expect(got[i] == exact_sum(all, count, i), "element %d of a sum: %a, exactly %a", i, static_cast<double>(got[i]),
               static_cast<double>(exact_sum(all, count, i)));
}

// Infinities and NaN go where IEEE 754 has them; NaN is the minimum and the maximum of whatever it is among.
template <typename Real> void check_nonfinite() {
    constexpr Real infinity = std::numeric_limits<Real>::infinity(), nan = std::numeric_limits<Real>::quiet_NaN();
    const Real send[5] = {world_rank ? 1 : infinity, world_rank ? -infinity : infinity, world_rank ? 1 : nan, -infinity, 2};
    Real sum[5], least[5], most[5];
    MPI_Allreduce(send, sum, 5, type_of<Real>(), MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(send, least, 5, type_of<Real>(), MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(send, most, 5, type_of<Real>(), MPI_MAX, MPI_COMM_WORLD);
    expect(sum[0] == infinity && std::isnan(sum[1]) && std::isnan(sum[2]) && sum[3] == -infinity && sum[4] == 2 * world_size,
           "sums of infinities and NaN");
    expect(least[0] == 1 && least[1] == -infinity && std::isnan(least[2]) && least[3] == -infinity, "minima of these");
    expect(most[0] == infinity && most[1] == infinity && std::isnan(most[2]) && most[3] == -infinity, "maxima of these");
}

void floats() {
    check_rounding<float>();
    check_rounding<double>();
    check_nonfinite<float>();
    check_nonfinite<double>();
}

struct Communicator {
    std::string name;
    MPI_Comm comm;
};

// MPI_COMM_WORLD and what is derived of it: a copy, halves, all but the last, the same backwards, a grid.
std::vector<Communicator> communicators() {
    std::vector<Communicator> all = {{"MPI_COMM_WORLD", MPI_COMM_WORLD}, {"MPI_COMM_SELF", MPI_COMM_SELF}};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    all.push_back({"a copy", comm});
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comm);
    all.push_back({"halves", comm});
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm);
    all.push_back({"backwards", comm});
    MPI_Comm_split(MPI_COMM_WORLD, world_rank == world_size - 1 ? MPI_UNDEFINED : 0, 0, &comm);
    if (comm != MPI_COMM_NULL)
        all.push_back({"all but one", comm});
    const int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &comm);
    all.push_back({"a ring", comm});
    return all;
}

void free_all(std::vector<Communicator> &all) {
    for (Communicator &each : all)
        if (each.comm != MPI_COMM_WORLD && each.comm != MPI_COMM_SELF)
            MPI_Comm_free(&each.comm);
}

void reductions() {
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (const Type &type : types())
        for (const Operator &op : operators())
            if (is_valid(type, op))
                for (const int count : {0, 1, 3, 1000, 40009})
                    check_reductions(MPI_COMM_WORLD, "MPI_COMM_WORLD", type, op, count);
    auto all = communicators();
    for (const Communicator &each : all)
        for (const Type &type : types())
            for (const Operator &op : {operators()[0], operators()[2]})
                if (is_valid(type, op))
                    for (const int count : {1, 777})
                        check_reductions(each.comm, each.name.c_str(), type, op, count);
    free_all(all);
}

void user_sum(void *in, void *inout, int *count, MPI_Datatype *) {
    for (int i = 0; i < *count; i++)
        static_cast<int *>(inout)[i] += static_cast<int *>(in)[i];
}

// Too far apart for an exact sum in a few limbs, and more than few: all ranks go to MPI together.
void far_apart() {
    constexpr int count = 100;
    std::vector<double> far(count, 1e300), want(count), got(count), later(count);
    far[count / 2] = world_rank ? 1e-300 : 1;
    std::vector<double> in_place = far;
    PMPI_Allreduce(far.data(), want.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(far.data(), got.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    expect(got == want, "values far apart");
    MPI_Allreduce(MPI_IN_PLACE, in_place.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    expect(in_place == want, "values far apart, in place");
    MPI_Request requests[2];
    double most = 0;
    MPI_Iallreduce(far.data(), later.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(&far[0], &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
    got.assign(count, 0);
    MPI_Reduce(far.data(), got.data(), count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    expect(later == want && most == 1e300, "values far apart, started");
    expect(world_rank || got == want, "values far apart, at the root");
}

// What no switch can do is done by MPI.
void left() {
    MPI_Op op;
    MPI_Op_create(user_sum, 1, &op);
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    expect(sum == world_size, "a user's operator");
    MPI_Op_free(&op);
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(
        [](void *in, void *inout, int *count, MPI_Datatype *) {
            int twice = 2 * *count;
            user_sum(in, inout, &twice, nullptr);
        },
        1, &op);
    int ones[2] = {1, 2}, sums[2] = {};
    MPI_Allreduce(ones, sums, 1, pair, op, MPI_COMM_WORLD);
    expect(sums[0] == world_size && sums[1] == 2 * world_size, "a derived type");
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
    far_apart();
    // Between groups.
    MPI_Comm half, between;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world_rank % 2, 3, &between);
    int others;
    MPI_Comm_remote_size(between, &others);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, between);
    expect(sum == others, "an intercommunicator");
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

void broadcasts() {
    for (const Type &type : types())
        for (const int count : {0, 1, 2, 3, 5, 1001, 30000})
            for (const int root : {0, world_size - 1}) {
                if (size_of(type.type) <= 0)
                    continue;
                Bytes got = values(type, count, 7), want = got;
                PMPI_Bcast(want.data(), count, type.type, root, MPI_COMM_WORLD);
                MPI_Bcast(got.data(), count, type.type, root, MPI_COMM_WORLD);
                expect(got == want, "Bcast from %d: %d of MPI_%s", root, count, type.name);
            }
    // Every third int, backwards, at the root; the same ints in a row elsewhere.
    const int count = 500, lengths[3] = {1, 1, 1}, places[3] = {6, 3, 0};
    MPI_Datatype type;
    MPI_Type_indexed(3, lengths, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    std::vector<int> spread(7 * count), dense(3 * count, -1);
    for (std::size_t i = 0; i < spread.size(); i++)
        spread[i] = static_cast<int>(i);
    if (world_rank == 0)
        MPI_Bcast(spread.data(), count, type, 0, MPI_COMM_WORLD);
    else
        MPI_Bcast(dense.data(), 3 * count, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; world_rank && i < count; i++)
        for (int j = 0; j < 3; j++)
            expect(dense[3 * i + j] == 7 * i + places[j], "Bcast of a derived type, element %d", 3 * i + j);
    // The other way: absolute addresses elsewhere.
    std::vector<int> target(3 * count, -1), source(3 * count, 5);
    MPI_Aint address;
    MPI_Datatype absolute;
    MPI_Get_address(target.data(), &address);
    const int length = 3 * count;
    MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    if (world_rank == 1)
        MPI_Bcast(source.data(), length, MPI_INT, 1, MPI_COMM_WORLD);
    else
        MPI_Bcast(MPI_BOTTOM, 1, absolute, 1, MPI_COMM_WORLD);
    expect(world_rank == 1 || target == source, "Bcast to MPI_BOTTOM");
    MPI_Type_free(&absolute);
    MPI_Type_free(&type);
}

// Sums under way on two communicators, started in another order on odd ranks; some on new communicators, so
// that the call that makes the job is one that must not wait.
void started() {
    MPI_Comm comms[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    constexpr int rounds = 20, count = 999;
    std::vector<double> sums(2 * rounds * count), ones(count, 1.5);
    std::vector<MPI_Request> requests(2 * rounds);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < rounds; i++) {
            const int which = (world_rank + half) % 2, slot = which * rounds + i;
            MPI_Iallreduce(ones.data(), &sums[slot * count], count, MPI_DOUBLE, MPI_SUM, comms[which], &requests[slot]);
        }
    double most = world_rank;
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, comms[0]); // comes after them
    expect(most == world_size - 1, "a blocking call among started ones");
    int first, flag;
    MPI_Status status;
    MPI_Waitany(2 * rounds, requests.data(), &first, &status);
    expect(first >= 0 && requests[first] == MPI_REQUEST_NULL, "Waitany");
    for (flag = 0; !flag;)
        MPI_Test(&requests[(first + 1) % (2 * rounds)], &flag, &status);
    int elements, cancelled;
    MPI_Get_count(&status, MPI_BYTE, &elements);
    MPI_Test_cancelled(&status, &cancelled);
    expect(elements == 0 && !cancelled, "status of a finished sum");
    MPI_Waitall(2 * rounds, requests.data(), MPI_STATUSES_IGNORE);
    for (const double sum : sums)
        expect(sum == 1.5 * world_size, "a started sum: %g", sum);
    // Freed while one is under way.
    std::vector<int> large(100000, world_rank), result(large.size());
    MPI_Request request;
    MPI_Iallreduce(large.data(), result.data(), static_cast<int>(large.size()), MPI_INT, MPI_SUM, comms[1], &request);
    MPI_Comm_free(&comms[1]);
    MPI_Wait(&request, &status);
    expect(std::ranges::all_of(result, [](int x) { return x == world_size * (world_size - 1) / 2; }),
           "a sum of a freed communicator");
    MPI_Comm_free(&comms[0]);
}

// Job numbers are used again.
void communicators_come_and_go() {
    for (int i = 0; i < 60; i++) {
        MPI_Comm comm;
        MPI_Comm_split(MPI_COMM_WORLD, i % 3 ? 0 : world_rank / 2, world_rank * (i % 2 ? 1 : -1), &comm);
        int size, sum, one = 1;
        MPI_Comm_size(comm, &size);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect(sum == size, "communicator %d", i);
        MPI_Comm_free(&comm);
    }
}

std::map<MPI_Comm, int> handled;

void count_error(MPI_Comm *comm, int *, ...) { handled[*comm]++; }

int class_of(int code) {
    int result;
    MPI_Error_class(code, &result);
    return result;
}

// Bad arguments: MPI's errors, and the next call works.
void errors() {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(count_error, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    int x = 1, y = 0;
    const auto alike = [&](const char *what, int code, int reference) {
        expect(code != MPI_SUCCESS && class_of(code) == class_of(reference), "%s: error %d, PMPI's is %d", what, code, reference);
    };
    alike("negative count", MPI_Allreduce(&x, &y, -1, MPI_INT, MPI_SUM, comm),
          PMPI_Allreduce(&x, &y, -1, MPI_INT, MPI_SUM, comm));
    alike("no type", MPI_Allreduce(&x, &y, 1, MPI_DATATYPE_NULL, MPI_SUM, comm),
          PMPI_Allreduce(&x, &y, 1, MPI_DATATYPE_NULL, MPI_SUM, comm));
    alike("no operator", MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_OP_NULL, comm),
          PMPI_Allreduce(&x, &y, 1, MPI_INT, MPI_OP_NULL, comm));
    alike("LAND of float", MPI_Allreduce(&x, &y, 1, MPI_FLOAT, MPI_LAND, comm),
          PMPI_Allreduce(&x, &y, 1, MPI_FLOAT, MPI_LAND, comm));
    alike("bad root", MPI_Bcast(&x, 1, MPI_INT, world_size, comm), PMPI_Bcast(&x, 1, MPI_INT, world_size, comm));
    alike("bad root", MPI_Reduce(&x, &y, 1, MPI_INT, MPI_SUM, -7, comm), PMPI_Reduce(&x, &y, 1, MPI_INT, MPI_SUM, -7, comm));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD,
                            MPI_ERRORS_RETURN); // which is asked when it is unclear who should be
    alike("result in place", MPI_Allreduce(&x, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm),
          PMPI_Allreduce(&x, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm));
    alike("no communicator", MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL),
          PMPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL));
    alike("no communicator", MPI_Barrier(MPI_COMM_NULL), PMPI_Barrier(MPI_COMM_NULL));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    expect(handled[comm] == 12, "error handler was called %d times", handled[comm]);
    MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_SUM, comm);
    expect(y == world_size, "a sum after errors");
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
}

// Nobody's attributes are copied to communicators that nobody asked for.
void attributes() {
    static int copies = 0;
    int keyval;
    MPI_Comm_create_keyval(
        [](MPI_Comm, int, void *, void *, void *, int *flag) {
            copies++;
            *flag = 1;
            return MPI_SUCCESS;
        },
        MPI_COMM_NULL_DELETE_FN, &keyval, nullptr);
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
    MPI_Comm_set_attr(comm, keyval, nullptr);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&keyval);
    expect(copies == 0, "attributes were copied %d times", copies);
}

const std::map<std::string, std::function<void()>> groups = {
    {"floats", floats},   {"reductions", reductions},          {"left", left},     {"broadcasts", broadcasts},
    {"started", started}, {"many", communicators_come_and_go}, {"errors", errors}, {"attributes", attributes}};

} // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    for (int i = 1; i < argc; i++)
        groups.at(argv[i])();
    MPI_Barrier(MPI_COMM_WORLD);
    int total;
    PMPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0 && total == 0)
        std::printf("ok\n");
    MPI_Finalize();
    return total != 0;
}
