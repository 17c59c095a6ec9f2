// SPDX-License-Identifier: BSD-2-Clause
// The transports that make_carrier() chooses from. Each joins the job and throws inagg::Error:
// INAGG_EPRIVILEGE or INAGG_ESYSTEM before the join if this machine cannot run it, which lets `auto`
// fall back.
#pragma once

#include "carrier.hpp"
#include "packet_io.hpp"
#include "transport.hpp"

#include <sys/socket.h>

namespace inagg {

// Address and port of the switch; throws INAGG_EINVAL if that is none.
sockaddr_storage switch_address(const inagg_options &options);

std::unique_ptr<PacketIo> make_udp_io(const inagg_options &options);

std::unique_ptr<Transport> make_udp(const inagg_options &options, BlockClient &client);
std::unique_ptr<Transport> make_afxdp(const inagg_options &options, BlockClient &client);
std::unique_ptr<Transport> make_xdp(const inagg_options &options, BlockClient &client);
std::unique_ptr<Carrier> make_kernel(const inagg_options &options);

} // namespace inagg
