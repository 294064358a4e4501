// SPDX-License-Identifier: Apache-2.0
// Fixtures of end-to-end and fault tests, and short forms of what they do most. One thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ferry/cuda.hpp"
#include "ferry/ferry.hpp"
#include "tests/support/client_process.h"
#include "tests/support/cluster.h"
#include "tests/support/pattern.h"
#include "tests/support/status.h"

namespace ferry::testing {

inline constexpr uint64_t kMiB = 1 << 20;

// The value of `result`; without one the test ends with a failure.
template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.status().ToString();
    throw std::runtime_error("the test cannot go on");
  }
  return std::move(*result);
}

// Has: whether the bytes there are the first ones of the stream of `seed` (pattern.h). Fill: makes
// them so. Both also for arenas on GPUs.
::testing::AssertionResult Has(const Arena& arena, uint64_t offset, uint64_t bytes, uint64_t seed);
void Fill(const Arena& arena, uint64_t offset, uint64_t bytes, uint64_t seed);

// One session with one arena on one device.
struct End {
  Session session;
  Arena arena;
  uint64_t device = 0;
};

class ClusterTest : public ::testing::Test {
 protected:
  // Starts the cluster. Call it once, before anything else.
  void Start(const ClusterOptions& options = {});
  Cluster& nodes() { return *cluster_; }
  Node& node(size_t i) { return (*cluster_)[i]; }
  // Opens a session with an arena on a device of the node: its own number `device`, counted from 0.
  End OpenEnd(size_t node, uint64_t bytes, uint64_t device = 0, const std::string& name = "test");
  // Moves all of one arena to all of the other under `key`; expects that it goes well and the bytes
  // arrive.
  void ExpectTransfer(End& source, End& destination, const std::string& key,
                      const PostOptions& options = {});
  // The output of ferryctl for `node`. The words of `command` are separated by one space.
  std::string Ferryctl(const std::string& command, int expected_status = 0, size_t node = 0);
  void TearDown() override;

  std::unique_ptr<Cluster> cluster_;
};

// The whole arena. If `by_call`, there are so many ranges without bytes behind it that a batch with
// them does not fit the session's socket and goes by a gRPC call.
std::vector<Range> RangesOf(const Arena& arena, bool by_call);
// Waits until the daemon has accepted the session's connection for calls. The daemon may do that
// after the session is open, so a test calls this before it counts the daemon's descriptors. Posts
// a send to device 1 and cancels it.
void AwaitCallConnection(Session& session);
Batch Send(End& from, const End& to, const std::string& key, std::vector<Range> ranges,
           const PostOptions& options = {});
Batch Receive(End& to, const End& from, const std::string& key, std::vector<Range> ranges,
              const PostOptions& options = {});

// A route, and how daemons are configured to take it.
struct RouteCase {
  const char* name;
  int route;             // FERRY_ROUTE_...
  bool one_node;         // source and destination are devices of one daemon
  const char* transfer;  // configuration of the daemons
};
extern const RouteCase kLocalRoute, kMappedRoute, kTcpRoute, kUcxShmRoute, kUcxTcpRoute;
inline void PrintTo(const RouteCase& route, std::ostream* out) { *out << route.name; }

// Two daemons. The source is device 0 of the first. The destination is device 0 of the second; on
// `local` it is device 1 of the first. Instantiate with RouteCases.
class RouteTest : public ClusterTest, public ::testing::WithParamInterface<RouteCase> {
 protected:
  void StartForRoute(ClusterOptions options = {});
  size_t source_node() const { return 0; }
  size_t destination_node() const { return GetParam().one_node ? 0 : 1; }
  uint64_t source_device() const { return 0; }
  uint64_t destination_device() const { return GetParam().one_node ? 1 : 2; }
  PostOptions options() const;
  // Waits until the destination's daemon knows of a send that is not matched.
  bool AwaitOffer();
  End OpenSource(uint64_t bytes) { return OpenEnd(0, bytes, 0, "source"); }
  End OpenDestination(uint64_t bytes) {
    return OpenEnd(destination_node(), bytes, GetParam().one_node ? 1 : 0, "destination");
  }
  // Client processes, each with one arena (index 0) on its device.
  std::unique_ptr<ClientProcess> SpawnSource(uint64_t bytes);
  std::unique_ptr<ClientProcess> SpawnDestination(uint64_t bytes);
  std::string route_option() const;  // for ClientProcess: " route=2"
};

inline std::string RouteCaseName(const ::testing::TestParamInfo<RouteCase>& info) {
  return info.param.name;
}
#define INSTANTIATE_ROUTES(suite, ...)                                    \
  INSTANTIATE_TEST_SUITE_P(Routes, suite, ::testing::Values(__VA_ARGS__), \
                           ::ferry::testing::RouteCaseName)
#define INSTANTIATE_ALL_ROUTES(suite)                                                      \
  INSTANTIATE_ROUTES(suite, ::ferry::testing::kLocalRoute, ::ferry::testing::kMappedRoute, \
                     ::ferry::testing::kTcpRoute, ::ferry::testing::kUcxTcpRoute)
#define INSTANTIATE_PEER_ROUTES(suite)                                                   \
  INSTANTIATE_ROUTES(suite, ::ferry::testing::kMappedRoute, ::ferry::testing::kTcpRoute, \
                     ::ferry::testing::kUcxTcpRoute)

}  // namespace ferry::testing
