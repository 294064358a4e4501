// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/top_tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/duration.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;
using Row = std::vector<TopCell>;

absl::Duration FromProto(const google::protobuf::Duration& value) {
  return absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

TopCell Text(std::string text) { return {std::move(text)}; }
TopCell Count(uint64_t count) { return {HumanCount(count), static_cast<double>(count)}; }
TopCell Size(uint64_t bytes) { return {HumanSize(bytes), static_cast<double>(bytes)}; }
TopCell Id(uint64_t id) { return {absl::StrCat(id), static_cast<double>(id)}; }
TopCell Lasting(absl::Duration value) {
  return {DurationText(value), absl::ToDoubleSeconds(value)};
}
// A number that is not known yet is sorted like the smallest.
TopCell Unknown() { return {"-", -1}; }

// The growth of a counter, a second.
class Rates {
 public:
  explicit Rates(const DaemonSample& daemon)
      : seconds_(daemon.before ? absl::ToDoubleSeconds(FromProto(daemon.now->uptime()) -
                                                       FromProto(daemon.before->uptime()))
                               : 0) {}
  std::optional<double> Of(uint64_t now, uint64_t before) const {
    if (seconds_ <= 0) return std::nullopt;
    return now > before ? static_cast<double>(now - before) / seconds_ : 0;
  }
  TopCell Bytes(uint64_t now, uint64_t before) const {
    const std::optional<double> rate = Of(now, before);
    if (!rate) return Unknown();
    return {*rate == 0 ? "0" : absl::StrFormat("%.3f", *rate / 1e9), *rate};
  }
  TopCell Events(uint64_t now, uint64_t before) const {
    const std::optional<double> rate = Of(now, before);
    if (!rate) return Unknown();
    return {*rate == 0 ? "0" : absl::StrFormat("%.*f", *rate < 10 ? 1 : 0, *rate), *rate};
  }
  // Percent of one CPU.
  TopCell Share(absl::Duration now, absl::Duration before) const {
    if (seconds_ <= 0) return Unknown();
    const double share = std::max(0.0, absl::ToDoubleSeconds(now - before) / seconds_);
    return {absl::StrFormat("%.0f %%", share * 100), share};
  }

 private:
  const double seconds_;
};

// The row of the former answer about the same thing; an empty row if the thing is new, and began at
// 0.
template <typename Rows, typename Same>
auto Before(const Rows* rows, const Same& same) {
  if (rows != nullptr) {
    const auto found = std::find_if(rows->begin(), rows->end(), same);
    if (found != rows->end()) return *found;
  }
  return typename Rows::value_type();
}

admin::Moved Sum(const Activity& activity) {
  admin::Moved sum;
  for (const admin::DeviceActivity& device : activity.devices()) {
    const admin::Moved& moved = device.moved();
    sum.set_sent_bytes(sum.sent_bytes() + moved.sent_bytes());
    sum.set_received_bytes(sum.received_bytes() + moved.received_bytes());
    sum.set_sent(sum.sent() + moved.sent());
    sum.set_received(sum.received() + moved.received());
    sum.set_failed(sum.failed() + moved.failed());
  }
  return sum;
}

const std::vector<TopColumn>& MovedColumns() {
  static const auto* const columns =
      new std::vector<TopColumn>{{"IN GB/S", "received_bytes_per_second", true},
                                 {"OUT GB/S", "sent_bytes_per_second", true},
                                 {"ENDED/S", "ended_well_per_second", true},
                                 {"FAILED/S", "failed_per_second", true}};
  return *columns;
}

void AddMoved(const Rates& rates, const admin::Moved& now, const admin::Moved& before, Row& row) {
  row.push_back(rates.Bytes(now.received_bytes(), before.received_bytes()));
  row.push_back(rates.Bytes(now.sent_bytes(), before.sent_bytes()));
  row.push_back(rates.Events(now.sent() + now.received(), before.sent() + before.received()));
  row.push_back(rates.Events(now.failed(), before.failed()));
}

// A table with rows for each daemon that has answered. With several daemons it has a column for the
// daemon.
class Maker {
 public:
  explicit Maker(const std::vector<DaemonSample>& daemons) : daemons_(daemons) {}

  TopTable Make(std::string name, const std::vector<TopColumn>& columns, bool moved,
                const std::vector<TopColumn>& more,
                const std::function<void(const DaemonSample&, const Rates&, TopTable&)>& add) {
    TopTable table;
    table.name = std::move(name);
    if (several()) table.columns.push_back({"NODE", "node"});
    table.columns.insert(table.columns.end(), columns.begin(), columns.end());
    if (moved) {
      table.columns.insert(table.columns.end(), MovedColumns().begin(), MovedColumns().end());
    }
    table.columns.insert(table.columns.end(), more.begin(), more.end());
    for (const DaemonSample& daemon : daemons_) {
      if (daemon.now) add(daemon, Rates(daemon), table);
    }
    return table;
  }
  // The first cells of a row of `table`.
  Row& Add(const DaemonSample& daemon, TopTable& table) const {
    Row& row = table.rows.emplace_back();
    if (several()) row.push_back(Text(daemon.node));
    return row;
  }
  bool several() const { return daemons_.size() > 1; }

 private:
  const std::vector<DaemonSample>& daemons_;
};

std::string StateText(const DaemonSample& daemon) {
  const std::string unheard = DurationText(daemon.unheard);
  if (!daemon.trouble.empty()) return absl::StrCat("gone for ", unheard, ": ", daemon.trouble);
  if (!daemon.now) return absl::StrCat("no answer for ", unheard);
  return absl::StrCat(daemon.now->draining() ? "draining" : "serving",
                      daemon.begun_anew
                          ? absl::StrCat(", began anew ",
                                         DurationText(absl::Trunc(FromProto(daemon.now->uptime()),
                                                                  absl::Seconds(1))),
                                         " ago")
                          : "");
}

TopTable Daemons(const std::vector<DaemonSample>& daemons) {
  TopTable table;
  table.name = "daemons";
  table.columns = {{"NODE", "node"},
                   {"UP", "uptime_seconds", true},
                   {"SESSIONS", "sessions", true},
                   {"IN FLIGHT", "transfers_in_flight", true},
                   {"JOBS", "jobs_in_flight", true}};
  table.columns.insert(table.columns.end(), MovedColumns().begin(), MovedColumns().end());
  table.columns.push_back({"STATE", "state"});
  for (const DaemonSample& daemon : daemons) {
    Row& row = table.rows.emplace_back();
    row.push_back(Text(daemon.node.empty() ? daemon.runtime_dir : daemon.node));
    if (daemon.now) {
      const Activity& now = *daemon.now;
      row.push_back(Lasting(FromProto(now.uptime())));
      row.push_back(Count(static_cast<uint64_t>(now.sessions_size())));
      row.push_back(Count(now.transfers_in_flight()));
      row.push_back(Count(now.jobs_in_flight()));
      AddMoved(Rates(daemon), Sum(now), daemon.before ? Sum(*daemon.before) : admin::Moved(), row);
    } else {
      row.resize(table.columns.size() - 1, Unknown());
    }
    row.push_back(Text(StateText(daemon)));
  }
  table.ascending = true;
  return table;
}

TopTable Devices(Maker maker) {
  TopTable table = maker.Make(
      "devices", {{"DEVICE", "device", true}, {"KIND", "kind"}, {"NAME", "name"}}, true,
      {{"LAUNCHED", "launched", true},
       {"ARENAS", "arenas", true},
       {"IN ARENAS", "arena_bytes", true},
       {"LANE CPU", "lane_cpus", true},
       {"LANE", "lane"}},
      [&](const DaemonSample& daemon, const Rates& rates, TopTable& made) {
        for (const admin::DeviceActivity& device : daemon.now->devices()) {
          const uint64_t id = device.device().global_device_id();
          const admin::DeviceActivity before =
              Before(daemon.before ? &daemon.before->devices() : nullptr,
                     [id](const auto& row) { return row.device().global_device_id() == id; });
          Row& row = maker.Add(daemon, made);
          row.push_back(Id(id));
          row.push_back(
              Text(device.device().kind() == ferry::v1::Device::KIND_GPU ? "gpu" : "host"));
          row.push_back(Text(device.device().name()));
          AddMoved(rates, device.moved(), before.moved(), row);
          row.push_back(Count(device.launched()));
          row.push_back(Count(device.arenas()));
          row.push_back(Size(device.arena_bytes()));
          row.push_back(rates.Share(FromProto(device.lane_cpu()), FromProto(before.lane_cpu())));
          // A look at the same moment as another one finds that look's task not run yet.
          const absl::Duration silent = FromProto(device.lane_silent());
          row.push_back(Text(silent < absl::Seconds(1)
                                 ? "goes on"
                                 : absl::StrCat("silent for ", DurationText(silent))));
        }
      });
  table.ascending = true;
  table.sorted_by = maker.several() ? 1 : 0;
  return table;
}

TopTable Routes(Maker maker) {
  TopTable table =
      maker.Make("routes", {{"ROUTE", "route"}}, true, {{"LAUNCHED", "launched", true}},
                 [&](const DaemonSample& daemon, const Rates& rates, TopTable& made) {
                   for (const admin::RouteActivity& route : daemon.now->routes()) {
                     const admin::RouteActivity before =
                         Before(daemon.before ? &daemon.before->routes() : nullptr,
                                [&](const auto& row) { return row.route() == route.route(); });
                     Row& row = maker.Add(daemon, made);
                     row.push_back(Text(route.route() == ferry::v1::ROUTE_UNSPECIFIED
                                            ? "none"
                                            : RouteText(static_cast<int>(route.route()))));
                     AddMoved(rates, route.moved(), before.moved(), row);
                     row.push_back(Count(route.launched()));
                   }
                 });
  table.sorted_by = maker.several() ? 2 : 1;
  return table;
}

TopTable Peers(Maker maker) {
  TopTable table = maker.Make(
      "peers", {{"PEER", "peer"}}, true,
      {{"LOST", "links_lost", true}, {"STATE", "state"}, {"ERROR", "error"}},
      [&](const DaemonSample& daemon, const Rates& rates, TopTable& made) {
        for (const admin::PeerActivity& peer : daemon.now->peers()) {
          const admin::PeerActivity before =
              Before(daemon.before ? &daemon.before->peers() : nullptr,
                     [&](const auto& row) { return row.peer().node() == peer.peer().node(); });
          Row& row = maker.Add(daemon, made);
          row.push_back(Text(peer.peer().node()));
          AddMoved(rates, peer.moved(), before.moved(), row);
          row.push_back(Count(peer.links_lost()));
          row.push_back(
              Text(absl::StrCat(peer.peer().state(), peer.peer().draining() ? ", drains" : "")));
          row.push_back(Text(peer.peer().error()));
        }
      });
  table.ascending = true;
  return table;
}

TopTable Sessions(Maker maker) {
  TopTable table = maker.Make(
      "sessions",
      {{"SESSION", "session", true}, {"NAME", "name"}, {"PID", "pid", true}, {"UID", "uid", true}},
      true, {{"IN FLIGHT", "in_flight", true}, {"MEMORY", "arena_bytes", true}},
      [&](const DaemonSample& daemon, const Rates& rates, TopTable& made) {
        for (const admin::SessionActivity& session : daemon.now->sessions()) {
          const admin::SessionActivity before =
              Before(daemon.before ? &daemon.before->sessions() : nullptr,
                     [&](const auto& row) { return row.session_id() == session.session_id(); });
          Row& row = maker.Add(daemon, made);
          row.push_back(Id(session.session_id()));
          row.push_back(Text(session.name()));
          row.push_back(Id(static_cast<uint64_t>(session.pid())));
          row.push_back(Id(session.uid()));
          AddMoved(rates, session.moved(), before.moved(), row);
          row.push_back(Count(session.in_flight()));
          row.push_back(Size(session.arena_bytes()));
        }
      });
  table.sorted_by = maker.several() ? 5 : 4;
  return table;
}

TopTable Transfers(Maker maker) {
  TopTable table = maker.Make(
      "transfers",
      {{"ID", "id"},
       {"SIDE", "side"},
       {"SRC", "source", true},
       {"DST", "destination", true},
       {"KEY", "key"},
       {"BYTES", "bytes", true},
       {"STATE", "state"},
       {"ROUTE", "route"},
       {"AGE", "age_seconds", true},
       {"WAITS FOR", "waits_for"}},
      false, {}, [&](const DaemonSample& daemon, const Rates&, TopTable& made) {
        for (const admin::TransferRow& transfer : daemon.now->transfers()) {
          Row& row = maker.Add(daemon, made);
          row.push_back(Text(absl::StrCat(transfer.session_id(), "/", transfer.transfer_id())));
          row.push_back(Text(transfer.side()));
          row.push_back(Id(transfer.src_global_device_id()));
          row.push_back(Id(transfer.dst_global_device_id()));
          row.push_back(Text(transfer.key()));
          row.push_back(Count(transfer.bytes()));
          row.push_back(Text(transfer.state()));
          row.push_back(Text(transfer.route() == ferry::v1::ROUTE_UNSPECIFIED
                                 ? ""
                                 : RouteText(static_cast<int>(transfer.route()))));
          row.push_back(Lasting(FromProto(transfer.age())));
          row.push_back(Text(transfer.waits_for()));
        }
      });
  table.sorted_by = maker.several() ? 9 : 8;
  return table;
}

}  // namespace

void TopTable::Sort() {
  std::stable_sort(rows.begin(), rows.end(), [this](const Row& a, const Row& b) {
    const TopCell& left = (ascending ? a : b)[sorted_by];
    const TopCell& right = (ascending ? b : a)[sorted_by];
    return columns[sorted_by].number ? left.number < right.number : left.text < right.text;
  });
}

std::vector<TopTable> TopTables(const std::vector<DaemonSample>& daemons) {
  const Maker maker(daemons);
  std::vector<TopTable> tables = {Daemons(daemons), Devices(maker),  Routes(maker),
                                  Peers(maker),     Sessions(maker), Transfers(maker)};
  for (TopTable& table : tables) table.Sort();
  return tables;
}

std::string TopJson(const std::vector<TopTable>& tables) {
  using Json = nlohmann::ordered_json;
  Json all = Json::object();
  for (const TopTable& table : tables) {
    Json rows = Json::array();
    for (const Row& row : table.rows) {
      Json out = Json::object();
      for (size_t c = 0; c < row.size(); ++c) {
        const TopColumn& column = table.columns[c];
        if (!column.number) {
          out[column.name] = row[c].text;
        } else if (row[c].number >= 0) {  // else it is not known
          const double number = row[c].number;
          const bool whole = number == std::floor(number) && number < 1e15;
          out[column.name] = whole ? Json(static_cast<uint64_t>(number)) : Json(number);
        }
      }
      rows.push_back(std::move(out));
    }
    all[table.name] = std::move(rows);
  }
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ferry::tools
