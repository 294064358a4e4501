// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/link_findings.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;
using Pair = std::pair<std::string, std::string>;  // sorted

constexpr size_t kPairsShown = 8;

// What the two ends of a link say of it; null for a daemon that was not asked, or does not know the
// other.
struct Views {
  const admin::Peer* of_first = nullptr;
  const admin::Peer* of_second = nullptr;
};

bool IsUp(const admin::Peer* view) { return view != nullptr && view->state() == "up"; }
bool Fails(const admin::Peer* view) {
  return view != nullptr && (view->state() == "lost" || (!IsUp(view) && !view->error().empty()));
}

// "node-b says lost: connection refused"
void Tell(const std::string& node, const std::string& other, const admin::Peer* view, bool asked,
          std::vector<std::string>& said) {
  if (view != nullptr) {
    said.push_back(absl::StrCat(node, " says ", view->state(),
                                view->error().empty() ? "" : absl::StrCat(": ", view->error())));
  } else if (asked) {
    said.push_back(absl::StrCat(node, " does not know ", other));
  }
}

std::string DialledAt(const std::string& node, const std::string& other, const admin::Peer* view) {
  return view == nullptr || view->address().empty()
             ? ""
             : absl::StrCat(other, " at ", view->address(), " from ", node);
}

Finding Explain(const Pair& pair, const Views& views, const std::set<std::string>& asked) {
  const auto& [first, second] = pair;
  std::vector<std::string> said;
  Tell(first, second, views.of_first, asked.contains(first), said);
  Tell(second, first, views.of_second, asked.contains(second), said);
  Finding finding{Severity::kNote, absl::StrCat("link of ", first, " and ", second),
                  absl::StrJoin(said, "; "), "nobody needed it yet"};
  const bool both_asked = asked.contains(first) && asked.contains(second);
  if (both_asked && (views.of_first == nullptr || views.of_second == nullptr)) {
    finding.severity = Severity::kWarning;
    finding.advice = "membership.nodes of both must have both";
  } else if (IsUp(views.of_first) || IsUp(views.of_second)) {
    finding.advice = "ask again: one end has not heard yet what the other knows";
  } else if (Fails(views.of_first) || Fails(views.of_second)) {
    finding.severity = Severity::kWrong;
    std::vector<std::string> ways;
    for (std::string way :
         {DialledAt(first, second, views.of_first), DialledAt(second, first, views.of_second)}) {
      if (!way.empty()) ways.push_back(std::move(way));
    }
    finding.advice = absl::StrCat("are both up, and is ", absl::StrJoin(ways, ", and "),
                                  ", reached? `ferryctl doctor` there tries the port");
  }
  return finding;
}

}  // namespace

Findings LinkFindings(const std::vector<admin::GetStatusResponse>& statuses) {
  std::map<Pair, Views> links;
  std::set<std::string> asked;
  for (size_t i = 1; i < statuses.size(); ++i) {
    const std::string& node = statuses[i].node();
    if (node == statuses[0].node() || !asked.insert(node).second) continue;
    for (const admin::Peer& peer : statuses[i].peers()) {
      if (peer.node() == statuses[0].node() || peer.state() == "refused") continue;
      const bool first = node < peer.node();
      Views& views = links[first ? Pair(node, peer.node()) : Pair(peer.node(), node)];
      (first ? views.of_first : views.of_second) = &peer;
    }
  }
  std::vector<std::string> up;
  Findings findings;
  for (const auto& [pair, views] : links) {
    // If one end was not asked, the other end's word stands.
    const bool first =
        views.of_first == nullptr ? !asked.contains(pair.first) : IsUp(views.of_first);
    const bool second =
        views.of_second == nullptr ? !asked.contains(pair.second) : IsUp(views.of_second);
    if (first && second) {
      up.push_back(absl::StrCat(pair.first, " and ", pair.second));
    } else {
      findings.push_back(Explain(pair, views, asked));
    }
  }
  if (up.empty()) return findings;
  const size_t more = up.size() - std::min(up.size(), kPairsShown);
  up.resize(up.size() - more);
  findings.insert(findings.begin(),
                  {Severity::kOk, "links of others",
                   absl::StrCat("up: ", absl::StrJoin(up, ", "),
                                more == 0 ? "" : absl::StrCat(", and ", more, " more pairs")),
                   ""});
  return findings;
}

}  // namespace ferry::tools
