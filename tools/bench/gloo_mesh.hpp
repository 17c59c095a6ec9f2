// SPDX-License-Identifier: BSD-2-Clause
// Ranks of Gloo that meet in a directory.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <string>

// Rank `rank` of `size`, connected with all others by TCP on eth0; `directory` is new and the same for all of
// them.
inline std::shared_ptr<gloo::Context> gloo_mesh(int rank, int size, const std::string &directory) {
    gloo::transport::tcp::attr attr;
    attr.iface = "eth0";
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    auto device = gloo::transport::tcp::CreateDevice(attr);
    context->connectFullMesh(store, device);
    return context;
}
