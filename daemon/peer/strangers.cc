// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/strangers.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "base/printable.h"

namespace ferry {

void Strangers::Add(const std::string& node, const absl::Status& why) {
  home_.Check();
  Forget(node);
  if (strangers_.size() == kMost) strangers_.erase(strangers_.begin());
  strangers_.push_back({Printable(node), std::string(why.message()), control_.Now()});
  FERRY_LOG_LIMITED(warn, "peer.refused", LogFields("peer", strangers_.back().node), "{}",
                    strangers_.back().why);
}

void Strangers::Forget(const std::string& node) {
  home_.Check();
  const std::string name = Printable(node);
  std::erase_if(strangers_, [&](const Stranger& stranger) { return stranger.node == name; });
}

std::vector<Strangers::Stranger> Strangers::List() const {
  home_.Check();
  std::vector<Stranger> listed;
  std::copy_if(strangers_.begin(), strangers_.end(), std::back_inserter(listed),
               [&](const Stranger& stranger) { return control_.Now() < stranger.since + kKept; });
  return listed;
}

}  // namespace ferry
