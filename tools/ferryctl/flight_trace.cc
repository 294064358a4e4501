// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/flight_trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;
using Json = nlohmann::ordered_json;

int64_t NanosOf(const admin::FlightEvent& event) {
  return event.time().seconds() * 1'000'000'000 + event.time().nanos();
}

// One end of a transfer, or a job, as the events have it. What a full recorder has overwritten is
// missing at the beginning.
struct Half {
  uint64_t session = 0, id = 0;
  std::string kind;         // "send", "receive", "job"; "": its beginning was overwritten
  std::string fingerprint;  // known once it has ended
  std::optional<int64_t> posted, matched, launched, ended;
  std::optional<uint64_t> device;  // of this node, if the event that says it was seen
  uint64_t status = 0;             // of its end
  std::string why;
  uint64_t members = 1;  // transfers of a convoy, whose id is that of the first; else 1
  uint64_t carrier = 0;  // id of the convoy that carries it

  int64_t begin() const { return posted.value_or(matched.value_or(launched.value_or(*ended))); }
};
using Halves = std::map<std::pair<uint64_t, uint64_t>, Half>;

Half& HalfOf(Halves& halves, uint64_t session, uint64_t id) {
  Half& half = halves[{session, id}];
  half.session = session;
  half.id = id;
  return half;
}

// This node's device, from the event with which a half or a job begins. Older daemons recorded no
// device for a job, and the destination for a send; these events have no text.
std::optional<uint64_t> DeviceOf(const admin::FlightEvent& event) {
  if (event.what() == "post.receive") return event.b();
  if (event.what() == "post.send" && !event.text().empty()) return event.b();
  absl::string_view text = event.text();
  uint64_t device = 0;
  if (event.what() == "job.run" && absl::ConsumePrefix(&text, "device ") &&
      absl::SimpleAtoi(text, &device)) {
    return device;
  }
  return std::nullopt;
}

Halves HalvesOf(const Flight& flight) {
  constexpr uint64_t kMostOfOneBatch = 4096;
  Halves halves;
  for (const admin::FlightEvent& event : flight.events()) {
    if (event.session_id() == 0) continue;
    const std::string& what = event.what();
    const int64_t at = NanosOf(event);
    const bool convoy = absl::StartsWith(what, "convoy");
    const uint64_t count = absl::StartsWith(what, "post.") ? std::min(event.c(), kMostOfOneBatch)
                           : convoy                        ? std::min(event.b(), kMostOfOneBatch)
                                                           : 1;
    for (uint64_t i = 0; i < count; ++i) {
      // The transfer of an offer is the other node's, with that node's ids.
      if (what == "offer") break;
      Half& half = HalfOf(halves, event.session_id(), event.transfer_id() + i);
      if (what == "post.send" || what == "post.receive") {
        half.posted = at;
        half.kind = what.substr(5);
        half.device = DeviceOf(event);
      } else if (convoy) {
        const bool made = what == "convoy";
        half.members = made && i == 0 ? count : 1;
        half.carrier = made && i > 0 ? event.transfer_id() : 0;
      } else if (what == "job.run") {
        half.posted = half.posted.value_or(at);
        half.launched = at;
        half.kind = "job";
        half.device = DeviceOf(event);
      } else if (what == "match") {
        half.matched = at;
      } else if (what == "launch" || what == "arm") {
        half.launched = at;
      } else if (absl::StartsWith(what, "end.") || what == "job.over") {
        half.ended = at;
        half.kind = what == "job.over" ? "job" : what.substr(4);
        half.fingerprint = event.fingerprint();
        half.status = what == "job.over" ? event.b() : event.c();
        half.why = event.text();
      }
    }
  }
  for (auto half = halves.begin(); half != halves.end();) {
    Half& one = half->second;
    const auto carrier = halves.find({one.session, one.carrier});
    if (carrier != halves.end()) {  // only for a convoy that fails is each transfer's end recorded
      one.matched = carrier->second.matched;
      one.launched = carrier->second.launched;
    }
    const bool alone = carrier == halves.end() || one.ended;
    const bool seen = alone && (one.posted || one.matched || one.launched || one.ended);
    seen ? ++half : half = halves.erase(half);
  }
  return halves;
}

// One group of NCCL. Each lane runs one at a time.
struct Group {
  uint64_t device = 0;  // device of the lane
  uint64_t bytes = 0;
  std::string text;  // its GPUs, and its number
  int64_t begin = 0;
  std::optional<int64_t> end;
  std::string why;  // why it failed; "": it did not
};

std::vector<Group> GroupsOf(const Flight& flight) {
  std::vector<Group> groups;
  std::map<uint64_t, size_t> running;
  for (const admin::FlightEvent& event : flight.events()) {
    if (event.what() == "group.run") {
      running[event.transfer_id()] = groups.size();
      groups.push_back({event.b(), event.c(), event.text(), NanosOf(event), std::nullopt, ""});
    } else if (event.what() == "group.over") {
      const auto began = running.find(event.transfer_id());
      if (began == running.end()) continue;  // its beginning was overwritten
      groups[began->second].end = NanosOf(event);
      groups[began->second].why = event.text();
      running.erase(began);
    }
  }
  return groups;
}

// The track of a slice. A node's tracks are in this order.
struct Track {
  enum Kind { kReceives, kSends, kGroups, kJobs, kOthers };
  uint64_t device = kNoDevice;
  Kind kind = kOthers;

  static Track Of(const Half& half) {
    const uint64_t device = half.device.value_or(kNoDevice);
    if (half.kind == "job") return {device, kJobs};
    if (half.kind == "send" && half.posted) return {device, kSends};
    return {device, half.device ? kReceives : kOthers};
  }
  std::string Name() const {
    const bool known = device != kNoDevice;
    const std::string lane = known ? absl::StrCat("lane of device ", device, ": ") : "";
    switch (kind) {
      case kReceives:
        return absl::StrCat(lane, "receives");
      case kSends:
        return absl::StrCat(lane, "sends");
      case kGroups:
        return absl::StrCat(lane, "groups");
      case kJobs:
        return known ? absl::StrCat("jobs of device ", device) : "jobs";
      case kOthers:
        return "posted before";
    }
    return "";
  }
  auto operator<=>(const Track&) const = default;
  static constexpr uint64_t kNoDevice = ~uint64_t{0};  // after all lanes
};

// Sends of one node with the receives of the other that have the same fingerprint, in the order in
// which they ended: a key may be used again and again.
std::vector<std::pair<const Half*, const Half*>> Pairs(const Halves& from, const Halves& to) {
  const auto by_fingerprint = [](const Halves& halves, const char* kind) {
    std::map<std::string, std::vector<const Half*>> found;
    for (const auto& [id, half] : halves) {
      if (half.kind == kind && half.ended && !half.fingerprint.empty()) {
        found[half.fingerprint].push_back(&half);
      }
    }
    for (auto& [fingerprint, some] : found) {
      std::sort(some.begin(), some.end(),
                [](const Half* a, const Half* b) { return *a->ended < *b->ended; });
    }
    return found;
  };
  std::vector<std::pair<const Half*, const Half*>> pairs;
  const auto sends = by_fingerprint(from, "send"), receives = by_fingerprint(to, "receive");
  for (const auto& [fingerprint, some] : sends) {
    const auto there = receives.find(fingerprint);
    if (there == receives.end()) continue;
    // Of events that were overwritten the older are gone, so halves are paired from the last one.
    for (size_t i = 1; i <= std::min(some.size(), there->second.size()); ++i) {
      pairs.emplace_back(some[some.size() - i], there->second[there->second.size() - i]);
    }
  }
  return pairs;
}

// What one transfer says about how far the receiver's clock is ahead of the sender's: by at least
// `least` and at most `most`.
struct Ahead {
  int64_t least = INT64_MIN, most = INT64_MAX;
  void Narrow(int64_t at_least, int64_t at_most) {
    least = std::max(least, at_least);
    most = std::min(most, at_most);
  }
};

// Slices that overlap do not fit one row of a trace, so each gets the first row that is free.
class Rows {
 public:
  size_t Take(int64_t begin, int64_t end) {
    for (size_t i = 0; i < free_from_.size(); ++i) {
      if (free_from_[i] <= begin) return Set(i, end);
    }
    free_from_.push_back(end);
    return free_from_.size() - 1;
  }
  size_t size() const { return free_from_.size(); }

 private:
  size_t Set(size_t row, int64_t end) {
    free_from_[row] = end;
    return row;
  }
  std::vector<int64_t> free_from_;
};

class Trace {
 public:
  // `start`: the time that is shown as 0.
  explicit Trace(int64_t start) : start_(start) {}

  // How far the node's clock is ahead of the trace's.
  void AddNode(size_t pid, const Flight& flight, const Halves& halves, int64_t ahead) {
    Meta(pid, 0, "process_name", flight.node());
    Meta(pid, 0, "thread_name", "links, sessions, daemon");
    std::vector<const Half*> in_order;
    for (const auto& [id, half] : halves) in_order.push_back(&half);
    std::stable_sort(in_order.begin(), in_order.end(),
                     [](const Half* a, const Half* b) { return a->begin() < b->begin(); });
    int64_t last = 0;
    for (const admin::FlightEvent& event : flight.events()) last = std::max(last, NanosOf(event));
    std::map<Track, Rows> tracks;
    std::vector<std::pair<Track, size_t>> of_halves, of_groups;  // each with its row in the track
    for (const Half* half : in_order) {
      const Track track = Track::Of(*half);
      of_halves.emplace_back(track, tracks[track].Take(half->begin(), half->ended.value_or(last)));
    }
    const std::vector<Group> groups = GroupsOf(flight);
    for (const Group& group : groups) {
      const Track track{group.device, Track::kGroups};
      of_groups.emplace_back(track, tracks[track].Take(group.begin, group.end.value_or(last)));
    }
    const std::map<Track, size_t> first = NameRows(pid, tracks);
    for (size_t i = 0; i < in_order.size(); ++i) {
      const size_t row = first.at(of_halves[i].first) + of_halves[i].second;
      places_[in_order[i]] = {pid, row, ahead};
      AddHalf(pid, row, *in_order[i], in_order[i]->ended.value_or(last), ahead);
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      AddGroup(pid, first.at(of_groups[i].first) + of_groups[i].second, groups[i], last, ahead);
    }
    for (const admin::FlightEvent& event : flight.events()) {
      const bool slice = event.what() == "group.run" || event.what() == "group.over";
      if (event.session_id() == 0 && !slice) AddMark(pid, event, ahead);
    }
  }
  void AddArrow(const Half& send, const Half& receive) {
    const Place from = places_.at(&send), to = places_.at(&receive);
    ++arrows_;
    Json begin = Event("s", from.pid, from.row, send.begin() - from.ahead, "transfer");
    Json end = Event("f", to.pid, to.row, *receive.ended - to.ahead, "transfer");
    begin["id"] = end["id"] = arrows_;
    end["bp"] = "e";
    events_.push_back(std::move(begin));
    events_.push_back(std::move(end));
  }
  std::string Take() {
    Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events_)}};
    return trace.dump();
  }

 private:
  struct Place {
    size_t pid = 0, row = 0;
    int64_t ahead = 0;
  };
  Json Event(const char* phase, size_t pid, size_t row, int64_t at, const std::string& name) const {
    return {{"ph", phase}, {"name", name}, {"cat", "ferry"},
            {"pid", pid},  {"tid", row},   {"ts", static_cast<double>(at - start_) / 1000}};
  }
  void Meta(size_t pid, size_t row, const char* what, const std::string& name) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", row}, {"args", {{"name", name}}}});
  }
  void AddSlice(size_t pid, size_t row, int64_t begin, int64_t end, const std::string& name,
                Json arguments = Json::object()) {
    Json slice = Event("X", pid, row, begin, name);
    slice["dur"] = static_cast<double>(end - begin) / 1000;
    slice["args"] = std::move(arguments);
    events_.push_back(std::move(slice));
  }
  // Each track gets its rows, one after another; the first row of each.
  std::map<Track, size_t> NameRows(size_t pid, const std::map<Track, Rows>& tracks) {
    std::map<Track, size_t> first;
    size_t next = 1;  // 0 has the marks
    for (const auto& [track, rows] : tracks) {
      first[track] = next;
      for (size_t row = 0; row < rows.size(); ++row, ++next) {
        Meta(pid, next, "thread_name",
             row == 0 ? track.Name() : absl::StrCat(track.Name(), " (", row + 1, ")"));
        Json order = {{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", pid}, {"tid", next}};
        order["args"] = {{"sort_index", next}};
        events_.push_back(std::move(order));
      }
    }
    return first;
  }
  void AddGroup(size_t pid, size_t row, const Group& group, int64_t last, int64_t ahead) {
    Json about = {{"bytes", group.bytes}, {"of", group.text}};
    if (!group.end) about["state"] = "not over";
    if (!group.why.empty()) about["why"] = group.why;
    AddSlice(pid, row, group.begin - ahead, group.end.value_or(last) - ahead,
             absl::StrCat("group: ", group.text), std::move(about));
  }
  void AddHalf(size_t pid, size_t row, const Half& half, int64_t end, int64_t ahead) {
    Json about = {{"id", absl::StrCat(half.session, "/", half.id)}};
    if (!half.fingerprint.empty()) about["fingerprint"] = half.fingerprint;
    if (!half.ended) about["state"] = "not over";
    if (half.status != 0) about["status"] = half.status;
    if (!half.why.empty()) about["why"] = half.why;
    std::string name =
        absl::StrCat(half.kind.empty() ? "transfer" : half.kind, " ", half.session, "/", half.id);
    if (half.members > 1) absl::StrAppend(&name, "-", half.id + half.members - 1);
    const int64_t begin = half.begin();
    AddSlice(pid, row, begin - ahead, end - ahead, name, std::move(about));
    const int64_t matched = half.matched.value_or(begin);
    const int64_t launched = half.launched.value_or(matched);
    if (matched > begin)
      AddSlice(pid, row, begin - ahead, matched - ahead, "waits for the other half");
    if (launched > matched)
      AddSlice(pid, row, matched - ahead, launched - ahead, "waits to be launched");
    if (half.launched && end > launched) {
      AddSlice(pid, row, launched - ahead, end - ahead, half.kind == "job" ? "runs" : "moves");
    }
  }
  void AddMark(size_t pid, const admin::FlightEvent& event, int64_t ahead) {
    Json mark = Event("i", pid, 0, NanosOf(event) - ahead, event.what());
    mark["s"] = "t";
    mark["args"] = {
        {"a", event.transfer_id()}, {"b", event.b()}, {"c", event.c()}, {"text", event.text()}};
    events_.push_back(std::move(mark));
  }

  const int64_t start_;
  uint64_t arrows_ = 0;
  std::map<const Half*, Place> places_;
  Json events_ = Json::array();
};

int64_t NanosAhead(const Halves& node, const Halves& other) {
  Ahead ahead;
  for (const auto& [send, receive] : Pairs(node, other)) {
    ahead.Narrow(*receive->ended - *send->ended, *receive->ended - send->begin());
  }
  for (const auto& [send, receive] : Pairs(other, node)) {
    ahead.Narrow(send->begin() - *receive->ended, *send->ended - *receive->ended);
  }
  const bool agrees = ahead.least <= 0 && ahead.most >= 0;
  if (agrees || ahead.least == INT64_MIN) return 0;
  return ahead.least + (ahead.most - ahead.least) / 2;
}

}  // namespace

absl::Duration ClockAhead(const Flight& node, const Flight& other) {
  return absl::Nanoseconds(NanosAhead(HalvesOf(node), HalvesOf(other)));
}

std::string FlightTrace(const std::vector<Flight>& flights) {
  std::vector<Halves> halves;
  std::vector<int64_t> ahead;
  int64_t start = INT64_MAX;
  for (const Flight& flight : flights) {
    halves.push_back(HalvesOf(flight));
    ahead.push_back(NanosAhead(halves.front(), halves.back()));
    for (const admin::FlightEvent& event : flight.events()) {
      start = std::min(start, NanosOf(event) - ahead.back());
    }
  }
  Trace trace(start == INT64_MAX ? 0 : start);
  for (size_t i = 0; i < flights.size(); ++i) {
    trace.AddNode(i + 1, flights[i], halves[i], i == 0 ? 0 : ahead[i]);
  }
  for (const Halves& from : halves) {
    for (const Halves& to : halves) {
      for (const auto& [send, receive] : Pairs(from, to)) trace.AddArrow(*send, *receive);
    }
  }
  return trace.Take();
}

}  // namespace ferry::tools
