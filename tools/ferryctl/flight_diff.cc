// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/flight_diff.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/duration.h"
#include "base/nearest.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

using ferry::admin::v1::FlightEvent;
using ferry::admin::v1::OfferRow;
using ferry::admin::v1::Peer;
using ferry::admin::v1::TransferRow;
using google::protobuf::util::TimeUtil;

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixNanos(TimeUtil::TimestampToNanoseconds(time));
}

absl::Duration AgeOf(const TransferRow& row) {
  return absl::Nanoseconds(TimeUtil::DurationToNanoseconds(row.age()));
}

absl::string_view OtherSide(const std::string& side) { return side == "send" ? "receive" : "send"; }

// `row` is a TransferRow or an OfferRow.
template <typename Row>
std::string KeyText(const Row& row) {
  return absl::StrCat("key ", row.key(), " from device ", row.src_global_device_id(), " to device ",
                      row.dst_global_device_id(), ", domain ", row.domain_fingerprint());
}

std::string StandsText(const TransferRow& row) {
  return absl::StrCat(row.state(), ", posted ", DurationText(AgeOf(row)),
                      " before the dump by session ", row.session_id(), " (transfer ",
                      row.transfer_id(), "); waits for ", row.waits_for());
}

// One node's dump, and how to find things in it.
class Node {
 public:
  explicit Node(const Flight& flight)
      : flight_(flight),
        devices_(flight.global_device_ids().begin(), flight.global_device_ids().end()) {
    for (const TransferRow& row : flight.transfers()) {
      rows_[{row.fingerprint(), row.side()}].push_back(&row);
    }
  }

  const Flight& flight() const { return flight_; }
  const std::string& name() const { return flight_.node(); }
  absl::Time taken() const { return TimeOf(flight_.taken()); }
  bool Owns(uint64_t device) const { return devices_.contains(device); }

  // Takes out the oldest half of `side` with this fingerprint; null if there is none. A key that
  // was matched may be used again, so there may be several.
  const TransferRow* Take(const std::string& fingerprint, const std::string& side) {
    auto found = rows_.find({fingerprint, side});
    if (found == rows_.end() || found->second.empty()) return nullptr;
    const TransferRow* row = found->second.front();
    found->second.erase(found->second.begin());
    return row;
  }

  // Whether this receive was not taken by a send.
  bool IsLeft(const TransferRow& receive) const {
    const auto found = rows_.find({receive.fingerprint(), receive.side()});
    return std::find(found->second.begin(), found->second.end(), &receive) != found->second.end();
  }

  const OfferRow* FindOffer(const std::string& fingerprint) const {
    for (const OfferRow& offer : flight_.offers()) {
      if (offer.fingerprint() == fingerprint) return &offer;
    }
    return nullptr;
  }

  const Peer* FindPeer(const std::string& node) const {
    for (const Peer& peer : flight_.peers()) {
      if (peer.node() == node) return &peer;
    }
    return nullptr;
  }

  // The last ending of such a half that the recorder still has.
  const FlightEvent* LastEnd(const std::string& fingerprint, absl::string_view side) const {
    const std::string what = absl::StrCat("end.", side);
    const FlightEvent* last = nullptr;
    for (const FlightEvent& event : flight_.events()) {
      if (event.fingerprint() == fingerprint && event.what() == what) last = &event;
    }
    return last;
  }

  absl::Time RecordsSince() const {
    const bool all = flight_.events().empty() || flight_.events(0).number() == 0;
    return all ? absl::InfinitePast() : TimeOf(flight_.events(0).time());
  }

 private:
  const Flight& flight_;
  const std::set<uint64_t> devices_;
  std::map<std::pair<std::string, std::string>, std::vector<const TransferRow*>> rows_;
};

std::string LinkText(const Node& from, const Node& to) {
  const Peer* peer = from.FindPeer(to.name());
  if (peer == nullptr) return absl::StrCat(from.name(), " does not know ", to.name());
  return absl::StrCat("the link of ", from.name(), " to ", to.name(), " is ", peer->state(),
                      peer->error().empty() ? "" : absl::StrCat(": ", peer->error()));
}

// "a send of key 'k' waits at node-a: the key differs"
std::string WaitsText(const TransferRow& other, const Node& node, absl::string_view differs) {
  return absl::StrCat("a ", other.side(), " of ", KeyText(other), " waits at ", node.name(),
                      ": the ", differs, " differ", absl::EndsWith(differs, "s") ? "" : "s");
}

// What waits at `node` in the place of the missing half: a half that is alike in all but one
// respect. Of halves that differ in more, only how many.
std::vector<std::string> NearMisses(const TransferRow& row, const Node& node) {
  constexpr size_t kMost = 3;
  const absl::string_view side = OtherSide(row.side());
  std::vector<std::string> near, same_devices;
  size_t others = 0;
  for (const TransferRow& other : node.flight().transfers()) {
    if (other.side() != side || other.fingerprint() == row.fingerprint()) continue;
    // It has found its other half.
    if (other.state() != "waiting" && other.state() != "offered") continue;
    const bool devices = other.src_global_device_id() == row.src_global_device_id() &&
                         other.dst_global_device_id() == row.dst_global_device_id();
    const bool domain = other.domain_fingerprint() == row.domain_fingerprint();
    if (other.key() == row.key()) {
      if (devices != domain) near.push_back(WaitsText(other, node, devices ? "domain" : "devices"));
    } else if (devices && domain && Alike(other.key(), row.key())) {
      same_devices.push_back(WaitsText(other, node, "key"));
    } else if (devices && domain) {
      ++others;
    }
  }
  if (same_devices.empty() && others > 0) {
    same_devices.push_back(
        others == 1 ? absl::StrCat("a ", side, " of another key waits at ", node.name())
                    : absl::StrCat(others, " ", side, "s of other keys wait at ", node.name()));
  }
  near.insert(near.end(), same_devices.begin(), same_devices.end());
  if (near.size() > kMost) {
    const size_t more = near.size() - kMost;
    near.resize(kMost);
    near.push_back(absl::StrCat(more, " more such ", side, "s wait there"));
  }
  return near;
}

// `row` waits at `here`, and its other half is not at `there`.
FlightDiff::Lack Explain(const TransferRow& row, const Node& here, const Node& there) {
  const std::string side(OtherSide(row.side()));
  FlightDiff::Lack lack;
  lack.node = there.name();
  lack.side = side;
  lack.key = KeyText(row);
  lack.has = absl::StrCat("the ", row.side(), " at ", here.name(), " is ", StandsText(row));
  const absl::Time posted = here.taken() - AgeOf(row);
  if (posted > there.taken()) {
    lack.hints.push_back(absl::StrCat("it was posted after the dump of ", there.name(),
                                      " was taken: take that one again"));
  }
  if (const FlightEvent* end = there.LastEnd(row.fingerprint(), side)) {
    lack.hints.push_back(
        absl::StrCat("the last ", side, " of this key at ", there.name(), " (session ",
                     end->session_id(), ", transfer ", end->transfer_id(), ") ended ",
                     DurationText(there.taken() - TimeOf(end->time())), " before the dump with ",
                     absl::StatusCodeToString(static_cast<absl::StatusCode>(end->c())),
                     end->text().empty() ? "" : absl::StrCat(" ", end->text())));
  } else if (posted < there.RecordsSince()) {
    lack.hints.push_back(absl::StrCat("the recorder of ", there.name(), " goes back ",
                                      DurationText(there.taken() - there.RecordsSince()),
                                      " only: what ended before is not known"));
  }
  for (std::string& near : NearMisses(row, there)) lack.hints.push_back(std::move(near));
  if (&here != &there) {
    if (row.side() == "receive") {
      lack.hints.push_back(
          absl::StrCat("no offer of it has come from ", there.name(), "; ", LinkText(here, there)));
    } else if (there.FindOffer(row.fingerprint()) != nullptr) {
      lack.hints.push_back(
          absl::StrCat(there.name(), " has the offer, and nobody there has posted the receive"));
    } else {
      lack.hints.push_back(
          absl::StrCat(there.name(), " has not got the offer; ", LinkText(here, there)));
    }
  }
  return lack;
}

// Whose words a prepared pair waits for; nothing if a dump does not say.
std::vector<std::string> FiringHints(const TransferRow& send, const Node& source,
                                     const TransferRow& receive, const Node& destination) {
  if (!send.has_fired() || !receive.has_fired()) return {};
  std::vector<std::string> hints;
  for (const auto& [row, node] : {std::make_pair(&send, &source), {&receive, &destination}}) {
    if (row->fired()) continue;
    hints.push_back(absl::StrCat("the ", row->side(), " at ", node->name(),
                                 " has not fired: its defined word has not reached ",
                                 row->firings() + 1));
  }
  if (hints.empty()) hints.push_back("both ends have fired: their bytes are under way");
  if (send.firings() != receive.firings()) {
    hints.push_back(absl::StrCat(
        "the send counts ", send.firings(), " firings, the receive ", receive.firings(),
        ": the dumps are of two moments, or the end of a firing is on its way"));
  }
  return hints;
}

}  // namespace

FlightDiff CompareFlights(const Flight& a, const Flight& b) {
  FlightDiff diff;
  Node first(a), second(b);
  const absl::Duration apart = second.taken() - first.taken();
  if (absl::AbsDuration(apart) > absl::Seconds(1)) {
    diff.remarks.push_back(absl::StrCat("by the nodes' clocks the dump of ",
                                        (apart < absl::ZeroDuration() ? second : first).name(),
                                        " is ", DurationText(absl::AbsDuration(apart)), " older"));
  }
  for (const auto& [here, there] : {std::make_pair(&first, &second), {&second, &first}}) {
    const Peer* peer = here->FindPeer(there->name());
    if (peer != nullptr && peer->incarnation() != 0 &&
        peer->incarnation() != there->flight().incarnation()) {
      diff.remarks.push_back(absl::StrCat(here->name(), " was linked to another life of ",
                                          there->name(),
                                          " than the one in the dump: it was restarted between"));
    }
  }
  // The sends tell of pairs; the receives that are left have no send.
  struct Waiting {
    absl::Time posted;
    FlightDiff::Lack lack;
  };
  std::vector<Waiting> lacks;
  for (const std::string side : {"send", "receive"}) {
    for (Node* here : {&first, &second}) {
      for (const TransferRow& row : here->flight().transfers()) {
        if (row.side() != side) continue;
        const uint64_t far =
            side == "send" ? row.dst_global_device_id() : row.src_global_device_id();
        Node* there = first.Owns(far) ? &first : second.Owns(far) ? &second : nullptr;
        if (there == nullptr) {
          ++diff.elsewhere;
          continue;
        }
        const TransferRow* other = nullptr;
        if (side == "send") {
          other = there->Take(row.fingerprint(), "receive");
        } else if (!here->IsLeft(row)) {
          continue;  // told with its send
        }
        if (other != nullptr) {
          diff.pairs.push_back({KeyText(row),
                                absl::StrCat("at ", here->name(), " ", StandsText(row)),
                                absl::StrCat("at ", there->name(), " ", StandsText(*other)),
                                FiringHints(row, *here, *other, *there)});
        } else {
          lacks.push_back({here->taken() - AgeOf(row), Explain(row, *here, *there)});
        }
      }
    }
  }
  std::stable_sort(lacks.begin(), lacks.end(),
                   [](const Waiting& x, const Waiting& y) { return x.posted < y.posted; });
  for (Waiting& waiting : lacks) diff.lacks.push_back(std::move(waiting.lack));
  return diff;
}

std::string FlightDiffText(const FlightDiff& diff, size_t limit) {
  std::string text;
  // Checked, because dumps are files that anybody may have written.
  const auto line = [&](const char* label, const std::string& what) {
    absl::StrAppend(&text, label, Printable(what), "\n");
  };
  for (size_t i = 0; i < std::min(limit, diff.lacks.size()); ++i) {
    const FlightDiff::Lack& lack = diff.lacks[i];
    line("", absl::StrCat(lack.node, " lacks the ", lack.side, " of ", lack.key));
    line("  ", lack.has);
    for (const std::string& hint : lack.hints) line("  ", hint);
  }
  if (diff.lacks.size() > limit) {
    absl::StrAppend(&text, HumanCount(diff.lacks.size() - limit), " more lack a half\n");
  }
  for (size_t i = 0; i < std::min(limit, diff.pairs.size()); ++i) {
    const FlightDiff::Pair& pair = diff.pairs[i];
    line("both have ", pair.key);
    line("  the send ", pair.send);
    line("  the receive ", pair.receive);
    for (const std::string& hint : pair.hints) line("  ", hint);
  }
  if (diff.pairs.size() > limit) {
    absl::StrAppend(&text, HumanCount(diff.pairs.size() - limit), " more have both halves\n");
  }
  absl::StrAppend(&text, HumanCount(diff.lacks.size()), " without their other half, ",
                  HumanCount(diff.pairs.size()), " with both, ", HumanCount(diff.elsewhere),
                  " with other nodes\n");
  for (const std::string& remark : diff.remarks) line("note: ", remark);
  return text;
}

std::string FlightDiffJson(const FlightDiff& diff) {
  nlohmann::ordered_json json;
  json["lacks"] = nlohmann::ordered_json::array();
  for (const FlightDiff::Lack& lack : diff.lacks) {
    json["lacks"].push_back({{"node", lack.node},
                             {"side", lack.side},
                             {"key", lack.key},
                             {"has", lack.has},
                             {"hints", lack.hints}});
  }
  json["pairs"] = nlohmann::ordered_json::array();
  for (const FlightDiff::Pair& pair : diff.pairs) {
    json["pairs"].push_back(
        {{"key", pair.key}, {"send", pair.send}, {"receive", pair.receive}, {"hints", pair.hints}});
  }
  json["elsewhere"] = diff.elsewhere;
  json["remarks"] = diff.remarks;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ferry::tools
