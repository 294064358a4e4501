// SPDX-License-Identifier: Apache-2.0
#include "bench/cases.h"

namespace ferry::bench {

absl::StatusOr<tools::BenchPair> OpenPair(const Settings& settings, const Nodes& nodes, int from,
                                          int to, int route) {
  tools::BenchPairOptions options;
  options.receiver_command = {settings.self, "bench-receiver"};
  options.client_dir = nodes.ClientDir(from);
  options.peer_client_dir = nodes.ClientDir(to);
  options.route = route;
  options.patience = kOrderPatience;
  return tools::BenchPair::Open(options);
}

}  // namespace ferry::bench
