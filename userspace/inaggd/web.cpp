// SPDX-License-Identifier: BSD-2-Clause
#include "web.hpp"

#include "desk.hpp"
#include "error.hpp"
#include "http_address.hpp"
#include "web_page.hpp"

#include <CivetServer.h>
#include <fmt/core.h>

#include <chrono>
#include <string_view>

namespace inaggd {
namespace {

constexpr std::chrono::seconds answer_limit{5};
constexpr std::chrono::milliseconds fresh_for{500};

// The page's own script and style, and nothing from elsewhere.
constexpr std::string_view policy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:";

void answer(mg_connection *to, const char *status, const char *type, std::string_view body) {
    const std::string head = fmt::format("HTTP/1.1 {}\r\nContent-Type: {}; charset=utf-8\r\nContent-Length: {}\r\n"
                                         "Cache-Control: no-store\r\nContent-Security-Policy: {}\r\n"
                                         "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
                                         "Connection: close\r\n\r\n",
                                         status, type, body.size(), policy);
    mg_write(to, head.data(), head.size());
    mg_write(to, body.data(), body.size());
}

class Handler : public CivetHandler {
public:
    // `only_local`: for those who name the host so. A page from elsewhere must not read this one by a name of its own that leads
    // here (DNS rebinding).
    explicit Handler(bool only_local) : only_local_(only_local) {}

    bool handleGet(CivetServer *, mg_connection *from) override {
        const char *host = CivetServer::getHeader(from, "Host");
        if (only_local_ && !is_local(host ? host : ""))
            answer(from, "403 Forbidden", "text/plain", "ask for 127.0.0.1 or localhost\n");
        else
            give(from);
        return true;
    }

protected:
    virtual void give(mg_connection *to) = 0;

private:
    static bool is_local(std::string_view host) {
        const std::string_view name = host.substr(0, host.find(':'));
        return name.starts_with("127.") ? name.find_first_not_of("0123456789.") == name.npos : name == "localhost";
    }

    bool only_local_;
};

class PageHandler final : public Handler {
    using Handler::Handler;
    void give(mg_connection *to) override { answer(to, "200 OK", "text/html", web_page); }
};

class StateHandler final : public Handler {
public:
    StateHandler(bool only_local, const Desk<std::string> &desk) : Handler(only_local), desk_(desk) {}

private:
    void give(mg_connection *to) override {
        const std::string state = desk_.ask(answer_limit);
        if (state.empty())
            answer(to, "503 Service Unavailable", "text/plain", "the agent has no time\n");
        else
            answer(to, "200 OK", "application/json", state);
    }

    const Desk<std::string> &desk_;
};

} // namespace

class WebServer::Handlers {
public:
    explicit Handlers(bool only_local) : page(only_local), state(only_local, desk) {}

    Desk<std::string> desk{fresh_for};
    PageHandler page;
    StateHandler state;
};

WebServer::WebServer(const std::string &where, std::function<nlohmann::ordered_json()> state)
    : state_(std::move(state)), handlers_(std::make_unique<Handlers>(where.starts_with("127."))) {
    need_own_address("--web", where);
    try {
        server_ = std::make_unique<CivetServer>(std::vector<std::string>{
            "listening_ports", where, "num_threads", "4", "request_timeout_ms", "5000", "enable_directory_listing", "no"});
    } catch (const CivetException &) { // which does not say why
        throw Error("--web {}: cannot listen there; does another program?", where);
    }
    server_->addHandler("/$", handlers_->page);
    server_->addHandler("/state.json", handlers_->state);
}

WebServer::~WebServer() { handlers_->desk.close(); }

int WebServer::fd() const { return handlers_->desk.bell(); }

void WebServer::serve() {
    handlers_->desk.answer([this] { return state_().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); });
}

} // namespace inaggd
