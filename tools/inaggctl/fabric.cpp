// SPDX-License-Identifier: BSD-2-Clause
#include "fabric.hpp"

#include "common/units.hpp"
#include "error.hpp"
#include "inagg/core/job.h"

#include <net/if.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

namespace inaggctl {
namespace {

using inaggd::Address;
using inaggd::Error;

// A table of the file. Each key is asked for once; what nobody has asked for is a mistake.
class Section {
public:
    Section(const toml::table &table, std::string path, std::string what)
        : table_(table), path_(std::move(path)), what_(std::move(what)) {}

    template <typename... Args>
    [[noreturn]] void fail(const toml::node &at, fmt::format_string<Args...> format, Args &&...args) const {
        throw Error("{}:{}: {}{}", path_, at.source().begin.line, what_.empty() ? "" : what_ + ": ",
                    fmt::format(format, std::forward<Args>(args)...));
    }
    template <typename... Args> [[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) const {
        fail(table_, format, std::forward<Args>(args)...);
    }

    const toml::node *find(const char *key) {
        known_.insert(key);
        return table_.get(key);
    }
    const toml::node &need(const char *key, const char *like) {
        const toml::node *node = find(key);
        if (!node)
            fail("{} is missing: write {}", key, like);
        return *node;
    }
    std::string text(const toml::node &node, const char *key) const {
        const auto value = node.value_exact<std::string>();
        if (!value || value->empty())
            fail(node, "{} must be a text in quotes", key);
        return *value;
    }
    Address address(const toml::node &node, const char *key) const {
        const std::string value = text(node, key);
        const auto address = Address::parse(value);
        const bool is_local = address && address->family == 6 && address->bytes[0] == 0xfe && (address->bytes[1] & 0xc0) == 0x80;
        if (!address || !address->is_host() || is_local)
            fail(node, "{} '{}' is no address that others reach; write one like 10.0.0.1", key, value);
        return *address;
    }
    unsigned number(const char *key, unsigned otherwise, unsigned least, unsigned most) {
        const toml::node *node = find(key);
        if (!node)
            return otherwise;
        const auto value = node->value_exact<int64_t>();
        if (!value || *value < least || *value > most)
            fail(*node, "{} must be a number, {} to {}", key, least, most);
        return static_cast<unsigned>(*value);
    }
    bool flag(const char *key) {
        const toml::node *node = find(key);
        if (node && !node->is_boolean())
            fail(*node, "{} must be true or false", key);
        return node && *node->value<bool>();
    }
    std::string rate(const char *key) {
        const toml::node *node = find(key);
        if (!node)
            return {};
        const std::string value = text(*node, key);
        try {
            inagg::parse_rate(value);
        } catch (const std::invalid_argument &error) {
            fail(*node, "{}: {}", key, error.what());
        }
        return value;
    }
    // The texts of a list, or of one that stands alone.
    std::vector<std::pair<const toml::node *, std::string>> texts(const toml::node &node, const char *key) const {
        std::vector<std::pair<const toml::node *, std::string>> values;
        if (const toml::array *list = node.as_array())
            for (const toml::node &element : *list)
                values.emplace_back(&element, text(element, key));
        else
            values.emplace_back(&node, text(node, key));
        return values;
    }
    const toml::table &table(const toml::node &node, const char *key, const char *like) const {
        if (!node.is_table())
            fail(node, "{} must be a table, like {}", key, like);
        return *node.as_table();
    }
    void end() const {
        for (const auto &[key, node] : table_)
            if (!known_.contains(std::string(key.str())))
                fail(node, "unknown key '{}'; known are {}", key.str(), fmt::join(known_, ", "));
    }

private:
    const toml::table &table_;
    std::string path_, what_;
    std::set<std::string> known_;
};

constexpr std::string_view name_letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";

constexpr double most_units = 0x1p23; // of G: as many bytes as ranks take

// As INAGG_AGGREGATE_FROM is read: bytes, with K, M or G behind.
bool is_size(const std::string &text) {
    double value = 0;
    const char *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
    return error == std::errc() && value >= 0 && value <= most_units &&
           (rest == end || (rest + 1 == end && std::string_view("KMG").find(*rest) != std::string_view::npos));
}

template <typename Named> std::optional<size_t> index_of(const std::vector<Named> &all, const std::string &name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Named &one) { return one.name == name; });
    return found == all.end() ? std::nullopt : std::optional<size_t>(found - all.begin());
}

class Reader {
public:
    explicit Reader(std::string path) : path_(std::move(path)) {}

    Fabric read() {
        const toml::table file = parse();
        Section top(file, path_, "");
        fabric_.host_rate = top.rate("host-rate");
        fabric_.uplink_rate = top.rate("uplink-rate");
        fabric_.first_job = static_cast<uint16_t>(top.number("first-job", 0, 0, UINT16_MAX));
        fabric_.only_planned = top.flag("only-planned");
        each(top, "spine", [this](Section &section) { read_spine(section); });
        each(top, "leaf", [this](Section &section) { read_leaf(section); });
        each(top, "job", [this](Section &section) { read_work(section); });
        top.end();
        return std::move(fabric_);
    }

private:
    toml::table parse() const {
        if (std::filesystem::is_directory(path_))
            throw Error("{}: it is a directory", path_);
        try {
            return toml::parse_file(path_);
        } catch (const toml::parse_error &error) {
            const auto line = error.source().begin.line;
            throw Error("{}{}: {}", path_, line ? fmt::format(":{}", line) : "", error.description());
        }
    }

    template <typename Read> void each(Section &top, const char *key, Read read) {
        const toml::node &node = top.need(key, fmt::format("at least one table [[{}]]", key).c_str());
        const toml::array *tables = node.as_array();
        if (!tables || !tables->is_array_of_tables())
            top.fail(node, "write each {} as a table [[{}]]", key, key);
        for (const toml::node &element : *tables) {
            const toml::table &table = *element.as_table();
            Section section(table, path_, fmt::format("{} {}", key, table["name"].value_or("without name")));
            read(section);
            section.end();
        }
    }

    // Names end in names of files.
    std::string name_of(Section &section, const char *like) {
        const toml::node &node = section.need("name", like);
        const std::string name = section.text(node, "name");
        if (name.front() == '.' || name.find_first_not_of(name_letters) != name.npos)
            section.fail(node, "a name has letters, digits, '.', '-' and '_' only, and begins with no '.'");
        if (!names_.insert(name).second)
            section.fail(node, "the name is taken");
        return name;
    }
    Address address_of(Section &section) { return unique(section, section.need("address", "address = \"10.0.0.1\""), "address"); }
    Address unique(Section &section, const toml::node &node, const char *key) {
        const Address address = section.address(node, key);
        if (address.family != (addresses_.empty() ? address : *addresses_.begin()).family)
            section.fail(node, "{} {}: all addresses must be IPv4, or all IPv6", key, address.text());
        if (!addresses_.insert(address).second)
            section.fail(node, "{} {} is somebody else's, too", key, address.text());
        return address;
    }
    void take_port(Section &section, const toml::node &node, const std::string &owner, const std::string &port) {
        if (port.size() >= IF_NAMESIZE || port.find_first_of("\"\\/=:, \t\r\n") != port.npos)
            section.fail(node, "port '{}' of {} is no name of an interface", port, owner);
        if (!ports_.insert({owner, port}).second)
            section.fail(node, "port {} of {} leads elsewhere, too", port, owner);
    }

    void read_spine(Section &section) {
        const std::string name = name_of(section, "name = \"spine0\"");
        fabric_.spines.push_back({name, address_of(section)});
    }

    void read_leaf(Section &section) {
        const std::string name = name_of(section, "name = \"leaf0\"");
        Leaf leaf{.name = name, .address = address_of(section), .uplinks = {}};
        const char *like_up = R"(up = { spine0 = ["swp49", "swp1"] }: the leaf's port, and the spine's)";
        const toml::node &up = section.need("up", like_up);
        for (const auto &[spine, ports] : section.table(up, "up", like_up))
            leaf.uplinks.push_back(uplink(section, leaf, std::string(spine.str()), ports));
        const char *like_hosts = R"(hosts = { swp1 = "10.0.1.11" })";
        const toml::node &hosts = section.need("hosts", like_hosts);
        for (const auto &[port, addresses] : section.table(hosts, "hosts", like_hosts)) {
            take_port(section, addresses, leaf.name, std::string(port.str()));
            for (const auto &[node, address] : section.texts(addresses, "address"))
                fabric_.hosts.push_back({unique(section, *node, "address"), fabric_.leaves.size(), std::string(port.str())});
        }
        fabric_.leaves.push_back(std::move(leaf));
    }

    Uplink uplink(Section &section, const Leaf &leaf, const std::string &name, const toml::node &node) {
        const size_t spine = spine_of(section, node, name);
        const auto ports = section.texts(node, "up");
        if (ports.size() != 2)
            section.fail(node, "up to {}: write two ports, the leaf's and the spine's, like [\"swp49\", \"swp1\"]", name);
        take_port(section, node, leaf.name, ports[0].second);
        take_port(section, node, name, ports[1].second);
        return {spine, ports[0].second, ports[1].second};
    }

    size_t spine_of(const Section &section, const toml::node &node, const std::string &name) const {
        const auto spine = index_of(fabric_.spines, name);
        if (!spine)
            section.fail(node, "there is no spine {}", name);
        return *spine;
    }

    void read_work(Section &section) {
        Work work{.name = name_of(section, "name = \"train\""), .hosts = {}, .spines = {}, .aggregate_from = {}};
        read_hosts(section, work);
        work.ranks_per_host = section.number("ranks-per-host", 1, 1, INAGG_MAX_RANKS);
        if (work.hosts.empty())
            section.fail("it has no hosts");
        if (work.size() > INAGG_MAX_RANKS)
            section.fail("{} hosts with {} ranks each are {} ranks; a job has {} at most", work.hosts.size(), work.ranks_per_host,
                         work.size(), INAGG_MAX_RANKS);
        read_algorithm(section, work);
        work.trees = section.number("trees", 0, 1, 64);
        work.numbers = section.number("numbers", 1, 1, 1 << 15);
        if (work.numbers > 1 && fabric_.only_planned)
            section.fail("numbers = {}: with only-planned spines admit none but those of the trees", work.numbers);
        if (const toml::node *node = section.find("spines")) {
            for (const auto &[at, name] : section.texts(*node, "spines"))
                work.spines.push_back(spine_of(section, *at, name));
            std::sort(work.spines.begin(), work.spines.end());
        }
        read_threshold(section, work);
        fabric_.works.push_back(std::move(work));
    }

    void read_hosts(Section &section, Work &work) {
        const toml::node *node = section.find("hosts");
        if (!node)
            for (size_t host = 0; host < fabric_.hosts.size(); host++)
                work.hosts.push_back(host);
        else
            for (const auto &[at, text] : section.texts(*node, "hosts")) {
                const Address address = section.address(*at, "hosts");
                const auto host = std::find_if(fabric_.hosts.begin(), fabric_.hosts.end(),
                                               [&](const Host &one) { return one.address == address; });
                if (host == fabric_.hosts.end())
                    section.fail(*at, "no leaf has a host {}", text);
                if (std::find(work.hosts.begin(), work.hosts.end(), host - fabric_.hosts.begin()) != work.hosts.end())
                    section.fail(*at, "host {} is there twice; ranks-per-host says how many ranks each has", text);
                work.hosts.push_back(static_cast<size_t>(host - fabric_.hosts.begin()));
            }
    }

    void read_algorithm(Section &section, Work &work) {
        const toml::node *node = section.find("algorithm");
        const std::string name = node ? section.text(*node, "algorithm") : "panama";
        const auto algorithm = inaggd::algorithm_number(name);
        if (!algorithm)
            section.fail(*node, "there is no algorithm '{}'; write switchml, trio, panama or canary", name);
        if (*algorithm == INAGG_ATP)
            section.fail(*node, "atp has a server above its switches and no spines to choose from");
        work.algorithm = *algorithm;
    }

    // PANAMA aggregates tensors of 40 MB and more (§3); the others' papers all.
    void read_threshold(Section &section, Work &work) {
        const toml::node *node = section.find("aggregate-from");
        work.aggregate_from = node ? section.text(*node, "aggregate-from") : work.algorithm == INAGG_PANAMA ? "40M" : "0";
        if (!is_size(work.aggregate_from))
            section.fail(*node, "aggregate-from '{}': write bytes, like \"64K\" or \"40M\", or \"0\"", work.aggregate_from);
    }

    std::string path_;
    Fabric fabric_;
    std::set<std::string> names_;
    std::set<Address> addresses_;
    std::set<std::pair<std::string, std::string>> ports_; // of whom
};

} // namespace

Fabric read_fabric(const std::string &path) { return Reader(path).read(); }

} // namespace inaggctl
