// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/activity.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/rpc/admin_rows.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/status_proto.h"
#include "transfer/engine_view.h"

namespace ferry {
namespace {

namespace pb = admin::v1;

void Set(const Moved& moved, pb::Moved* out) {
  out->set_sent_bytes(moved.sent_bytes);
  out->set_received_bytes(moved.received_bytes);
  out->set_sent(moved.sent);
  out->set_received(moved.received);
  out->set_failed(moved.failed);
}

template <typename Map, typename Key>
typename Map::mapped_type At(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? typename Map::mapped_type() : found->second;
}

void SetDevices(const AdminCore& core, absl::Time now, const Traffic::View& view,
                pb::GetActivityResponse* out) {
  absl::flat_hash_map<GlobalDeviceId, Moved> moved;
  for (const auto& [way, of_way] : view.ways) moved[std::get<0>(way)] += of_way;
  for (const auto& device : core.devices.list) {
    pb::DeviceActivity* row = out->add_devices();
    ToProto(device->info(), row->mutable_device());
    Set(At(moved, device->id), row->mutable_moved());
    row->set_launched(At(view.launched, device->id));
    row->set_arenas(device->arenas);
    row->set_arena_bytes(device->arena_bytes);
    SetDuration(device->lane->CpuTime(), row->mutable_lane_cpu());
    const absl::Duration silent = device->pulse.Silent(*device->lane, now);
    if (silent > absl::ZeroDuration()) SetDuration(silent, row->mutable_lane_silent());
  }
}

void SetRoutes(const AdminCore& core, const Traffic::View& view, pb::GetActivityResponse* out) {
  std::array<Moved, kRoutes> moved = {};
  std::array<bool, kRoutes> shown = {};
  for (const Route route : core.config.transfer.order) shown[static_cast<size_t>(route)] = true;
  for (const auto& [way, of_way] : view.ways) {
    const size_t route = static_cast<size_t>(std::get<2>(way));
    moved[route] += of_way;
    shown[route] = true;
  }
  for (size_t route = 0; route < kRoutes; ++route) {
    if (!shown[route]) continue;
    pb::RouteActivity* row = out->add_routes();
    row->set_route(static_cast<v1::Route>(route));
    Set(moved[route], row->mutable_moved());
    row->set_launched(view.launched_by_route[route]);
  }
}

void SetPeers(const AdminCore& core, absl::Time now, const Traffic::View& view,
              pb::GetActivityResponse* out) {
  absl::flat_hash_map<GlobalDeviceId, Moved> moved;  // by the device at the other end
  for (const auto& [way, of_way] : view.ways) moved[std::get<1>(way)] += of_way;
  for (const PeerTable::Row& peer : core.peers.List()) {
    pb::PeerActivity* row = out->add_peers();
    SetPeer(peer, now, row->mutable_peer());
    Moved of_peer;
    for (const GlobalDeviceId device : peer.devices) of_peer += At(moved, device);
    Set(of_peer, row->mutable_moved());
    if (!peer.address.empty()) {
      row->set_links_lost(core.rpc.driver.metrics().links_lost(peer.node));
    }
  }
}

void SetSessions(const AdminCore& core, const Traffic::View& view, pb::GetActivityResponse* out) {
  for (const Session* session : core.rpc.sessions.List()) {
    pb::SessionActivity* row = out->add_sessions();
    row->set_session_id(session->id().value());
    row->set_name(session->name());
    row->set_pid(session->credentials().pid);
    row->set_uid(session->credentials().uid);
    Moved moved = session->moved();
    moved += At(view.fired_of_sessions, session->id());
    Set(moved, row->mutable_moved());
    const SessionUse use = session->use();
    row->set_in_flight(use.transfers_in_flight);
    row->set_arena_bytes(use.bytes);
  }
}

}  // namespace

void SetActivity(const AdminCore& core, size_t limit, pb::GetActivityResponse* out) {
  const absl::Time now = core.rpc.control.Now();
  const EngineView& transfers = core.rpc.driver.engine().view();
  out->set_node(core.config.node.name);
  out->set_incarnation(core.incarnation.value());
  SetDuration(now - core.started, out->mutable_uptime());
  out->set_draining(core.rpc.driver.draining());
  out->set_transfers_in_flight(transfers.in_flight());
  out->set_jobs_in_flight(core.rpc.jobs.in_flight());
  const Traffic::View view = core.rpc.driver.LookAtTraffic(limit);
  SetDevices(core, now, view, out);
  SetRoutes(core, view, out);
  SetPeers(core, now, view, out);
  SetSessions(core, view, out);
  for (const TransferId transfer : view.oldest) {
    SetTransfer(*transfers.Find(transfer), now, core.rpc.sessions, out->add_transfers());
  }
}

}  // namespace ferry
