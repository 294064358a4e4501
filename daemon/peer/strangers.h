// SPDX-License-Identifier: Apache-2.0
// The strangers: daemons that called under a name that membership.nodes does not have. Each is
// logged and remembered, so that operators see who was refused, and why. Of more than kMost the one
// that called longest ago is forgotten: anybody may call. Home: control. Owner: PeerTable.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"

namespace ferry {

class Strangers {
 public:
  static constexpr size_t kMost = 8;
  // For how long a stranger is listed.
  static constexpr absl::Duration kKept = absl::Minutes(10);

  struct Stranger {
    std::string node;  // printable: what is no text is escaped
    std::string why;   // why it was refused
    absl::Time since;  // when it last called
  };

  explicit Strangers(Executor& control) : control_(control) {}

  // A daemon of this name, which may be any bytes, was refused.
  void Add(const std::string& node, const absl::Status& why);
  // The node is a peer from now on.
  void Forget(const std::string& node);
  // Those that called within kKept; the latest last.
  std::vector<Stranger> List() const;

 private:
  Executor& control_;
  std::vector<Stranger> strangers_;  // the latest last; at most one of each name
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
