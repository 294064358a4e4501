// SPDX-License-Identifier: Apache-2.0
#include "daemon/socket_bounds.h"

#include <sys/resource.h>

#include <algorithm>

namespace ferry {
namespace {

constexpr size_t kStrangers = 256;
// A peer opens the data connections of several lanes at once; a connection that finds no seat
// comes again.
constexpr size_t kStrangersOfOneAddress = 32;
constexpr size_t kOperators = 64;

// How many connections are allowed if all of them may use `share` of 64 parts of the process's
// descriptors and each uses `each`; no more than are of use.
size_t Share(size_t of_64, size_t each, size_t most) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const size_t share = std::min<rlim_t>(limit.rlim_max, 1 << 20) / 64 * of_64 / each;
  return std::clamp<size_t>(share, 4, std::max<size_t>(most, 4));
}
constexpr size_t kSocket = 1;
constexpr size_t kSocketAndProcess = 2;
constexpr size_t kSocketAndTimer = 2;
constexpr size_t kScrape = 3;  // socket and timer, and the descriptor by which control answers

Admission::Bounds Bounds(const Config& config, const char* door, size_t open, size_t open_each) {
  const double rate = config.limits.connects_per_second;
  return {door, open, std::min(open, open_each), rate, 2 * rate};
}

// A session has one connection to attach.sock and one to client.sock; as many may be on their way.
Admission::Bounds OfAttach(const Config& config) {
  return Bounds(config, "attach.sock",
                Share(12, kSocketAndProcess, 2 * size_t{config.limits.sessions}),
                2 * size_t{config.limits.sessions_per_uid});
}

Admission::Bounds OfClient(const Config& config) {
  return Bounds(config, "client.sock",
                Share(10, kSocket,
                      std::max<size_t>(2 * size_t{config.limits.sessions},
                                       config.limits.connections_per_uid)),
                config.limits.connections_per_uid);
}

Admission::Bounds OfAdmin(const Config& config) {
  return Bounds(config, "admin.sock", Share(1, kSocket, kOperators), kOperators);
}

Admission::Bounds OfMetrics(const Config& config, const char* door) {
  return Bounds(config, door, Share(1, kScrape, kOperators), kOperators);
}

Admission::Bounds OfPeerSocket(const Config& config) {
  const size_t most = 2 * config.membership.nodes.size() + kOperators;
  return Bounds(config, "peer.sock", Share(2, kSocket, most), most);
}

Admission::Bounds OfStrangers(const Config& config) {
  return Bounds(config, "the peer port", Share(3, kSocketAndTimer, kStrangers),
                kStrangersOfOneAddress);
}

constexpr char kMetricsSocket[] = "metrics.sock", kMetricsPort[] = "the metrics port";

}  // namespace

SocketBounds::SocketBounds(const Config& config, ConnectionTable& clients, ConnectionTable& peers)
    : attach(OfAttach(config)),
      client(OfClient(config), [&clients] { clients.Sweep(); }),
      admin(OfAdmin(config), [&clients] { clients.Sweep(); }),
      metrics(OfMetrics(config, kMetricsSocket)),
      metrics_port(OfMetrics(config, kMetricsPort)),
      peer_socket(OfPeerSocket(config)),
      strangers(OfStrangers(config), [&peers] { peers.Sweep(); }) {}

void SocketBounds::Configure(const Config& config) {
  attach.SetBounds(OfAttach(config));
  client.SetBounds(OfClient(config));
  admin.SetBounds(OfAdmin(config));
  metrics.SetBounds(OfMetrics(config, kMetricsSocket));
  metrics_port.SetBounds(OfMetrics(config, kMetricsPort));
  peer_socket.SetBounds(OfPeerSocket(config));
  strangers.SetBounds(OfStrangers(config));
}

}  // namespace ferry
