// SPDX-License-Identifier: BSD-2-Clause
/// The C++ face of libinagg: the C API with spans, ownership and exceptions. Header only; link with
/// libinagg.
///
///     inagg::Comm comm;                        // joins, as INAGG_SWITCH, INAGG_JOB, ... say
///     std::vector<float> gradient = ...;
///     comm.allreduce<float>(gradient);         // sums in place
#pragma once

#include <inagg/inagg.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace inagg
{

/// A failed call: its number and inagg_message().
class Exception : public std::runtime_error
{
      public:
	explicit Exception(int code)
	    : std::runtime_error(inagg_message()), code_(static_cast<inagg_error>(code))
	{
	}
	inagg_error code() const noexcept
	{
		return code_;
	}

      private:
	inagg_error code_;
};

namespace detail
{

inline void check(int result)
{
	if (result)
		throw Exception(result);
}

inline inagg_outcome last_outcome()
{
	inagg_outcome outcome;
	outcome.struct_size = sizeof(outcome);
	check(inagg_last_outcome(&outcome));
	return outcome;
}

} // namespace detail

/// binary16 and bfloat16 elements, as bits: C++20 has no types for them.
enum class float16 : uint16_t {};
enum class bfloat16 : uint16_t {};

/// The inagg_dtype of an element type.
template <typename T> constexpr inagg_dtype dtype_of()
{
	static_assert(std::is_same_v<T, int32_t> || std::is_same_v<T, float> || std::is_same_v<T, float16> ||
			  std::is_same_v<T, bfloat16> || std::is_same_v<T, int64_t> ||
			  std::is_same_v<T, double>,
		      "elements are int32_t, int64_t, float, double, inagg::float16 or inagg::bfloat16");
	if constexpr (std::is_same_v<T, int32_t>)
		return INAGG_INT32;
	else if constexpr (std::is_same_v<T, int64_t>)
		return INAGG_INT64;
	else if constexpr (std::is_same_v<T, double>)
		return INAGG_FLOAT64;
	else if constexpr (std::is_same_v<T, float>)
		return INAGG_FLOAT32;
	else if constexpr (std::is_same_v<T, float16>)
		return INAGG_FLOAT16;
	else
		return INAGG_BFLOAT16;
}

/// An operation under way. Its buffers must live until wait() has returned; the destructor waits.
class Request
{
      public:
	Request() = default;
	explicit Request(inagg_request *request) : request_(request)
	{
	}
	Request(Request &&other) noexcept
	    : request_(std::exchange(other.request_, nullptr)), outcome_(other.outcome_)
	{
	}
	Request &operator=(Request &&other) noexcept
	{
		std::swap(request_, other.request_);
		std::swap(outcome_, other.outcome_);
		return *this;
	}
	~Request()
	{
		if (request_)
			inagg_wait(request_);
	}

	/// Returns when the operation is done, and of whom its result is made; throws its error.
	inagg_outcome wait()
	{
		if (request_) {
			detail::check(inagg_wait(std::exchange(request_, nullptr)));
			outcome_ = detail::last_outcome();
		}
		return outcome_;
	}
	/// Is it done? Does not wait.
	bool test()
	{
		return !request_ || inagg_test(request_);
	}

      private:
	inagg_request *request_ = nullptr;
	inagg_outcome outcome_{};
};

/// A rank's membership of a job; the destructor leaves it.
class Comm
{
      public:
	/// Joins as the environment says.
	Comm() : Comm(options_from_env())
	{
	}
	explicit Comm(const inagg_options &options)
	{
		detail::check(inagg_join(&options, &comm_));
	}
	Comm(Comm &&other) noexcept : comm_(std::exchange(other.comm_, nullptr))
	{
	}
	Comm &operator=(Comm &&other) noexcept
	{
		std::swap(comm_, other.comm_);
		return *this;
	}
	~Comm()
	{
		inagg_leave(comm_);
	}

	static inagg_options options_from_env()
	{
		inagg_options options;
		detail::check(inagg_options_from_env(&options));
		return options;
	}

	/// Leave now; throws what the destructor would hide.
	void leave()
	{
		detail::check(inagg_leave(std::exchange(comm_, nullptr)));
	}

	uint16_t rank() const
	{
		return inagg_rank(comm_);
	}
	uint16_t size() const
	{
		return inagg_size(comm_);
	}
	const char *transport() const
	{
		return inagg_transport(comm_);
	}
	const char *transport_note() const
	{
		return inagg_transport_note(comm_);
	}
	inagg_stats_t stats() const
	{
		inagg_stats_t stats;
		inagg_get_stats(comm_, &stats);
		return stats;
	}
	/// For calls that this class does not wrap.
	inagg_comm *get()
	{
		return comm_;
	}

	/// recv = sum (minimum, maximum, average) of all ranks' send; both may be the same memory. Returns of
	/// whom the result is made.
	template <typename T>
	inagg_outcome allreduce(std::span<const std::type_identity_t<T>> send,
				std::span<std::type_identity_t<T>> recv, inagg_op op = INAGG_SUM)
	{
		same_length(send.size(), recv.size());
		detail::check(
		    inagg_allreduce(comm_, send.data(), recv.data(), send.size(), dtype_of<T>(), op));
		return detail::last_outcome();
	}
	/// In place.
	template <typename T>
	inagg_outcome allreduce(std::span<std::type_identity_t<T>> data, inagg_op op = INAGG_SUM)
	{
		return allreduce<T>(data, data, op);
	}
	template <typename T>
	[[nodiscard]] Request iallreduce(std::span<const std::type_identity_t<T>> send,
					 std::span<std::type_identity_t<T>> recv, inagg_op op = INAGG_SUM)
	{
		same_length(send.size(), recv.size());
		return begin(inagg_iallreduce, send.data(), recv.data(), send.size(), dtype_of<T>(), op);
	}
	/// Copy the root's data to all ranks.
	template <typename T> void broadcast(std::span<std::type_identity_t<T>> data, uint16_t root)
	{
		detail::check(inagg_broadcast(comm_, data.data(), data.size(), dtype_of<T>(), root));
	}
	template <typename T>
	[[nodiscard]] Request ibroadcast(std::span<std::type_identity_t<T>> data, uint16_t root)
	{
		return begin(inagg_ibroadcast, data.data(), data.size(), dtype_of<T>(), root);
	}
	/// As allreduce(); only the root's recv is written, others may pass an empty span.
	template <typename T>
	inagg_outcome reduce(std::span<const std::type_identity_t<T>> send,
			     std::span<std::type_identity_t<T>> recv, uint16_t root, inagg_op op = INAGG_SUM)
	{
		if (rank() == root)
			same_length(send.size(), recv.size());
		detail::check(
		    inagg_reduce(comm_, send.data(), recv.data(), send.size(), dtype_of<T>(), op, root));
		return detail::last_outcome();
	}
	template <typename T>
	[[nodiscard]] Request ireduce(std::span<const std::type_identity_t<T>> send,
				      std::span<std::type_identity_t<T>> recv, uint16_t root,
				      inagg_op op = INAGG_SUM)
	{
		if (rank() == root)
			same_length(send.size(), recv.size());
		return begin(inagg_ireduce, send.data(), recv.data(), send.size(), dtype_of<T>(), op, root);
	}
	/// How many data blocks of the calls to come are decided already.
	uint64_t blocks_ahead()
	{
		uint64_t blocks = 0;
		detail::check(inagg_blocks_ahead(comm_, &blocks));
		return blocks;
	}
	/// Returns when all ranks have called it.
	void barrier()
	{
		detail::check(inagg_barrier(comm_));
	}
	[[nodiscard]] Request ibarrier()
	{
		return begin(inagg_ibarrier);
	}
	/// Bitmap of the ranks that the job goes on without (trio).
	std::uint64_t excluded()
	{
		std::uint64_t ranks = 0;
		detail::check(inagg_excluded(comm_, &ranks));
		return ranks;
	}
	/// Bitmaps of the ranks that the switch takes for stragglers: temporary ones, permanent ones (trio).
	std::pair<std::uint64_t, std::uint64_t> stragglers()
	{
		std::uint64_t temporary = 0, permanent = 0;
		detail::check(inagg_stragglers(comm_, &temporary, &permanent));
		return {temporary, permanent};
	}
	/// Takes back ranks that were excluded and have joined again; true on all ranks if there were any.
	bool renew()
	{
		int renewed = 0;
		detail::check(inagg_renew(comm_, &renewed));
		return renewed != 0;
	}

      private:
	template <typename Function, typename... Arguments>
	Request begin(Function function, Arguments... arguments)
	{
		inagg_request *request = nullptr;
		detail::check(function(comm_, arguments..., &request));
		return Request(request);
	}
	static void same_length(std::size_t send, std::size_t recv)
	{
		if (send != recv)
			throw std::invalid_argument("send has " + std::to_string(send) + " elements, recv " +
						    std::to_string(recv));
	}

	inagg_comm *comm_ = nullptr;
};

} // namespace inagg
