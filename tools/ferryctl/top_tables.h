// SPDX-License-Identifier: Apache-2.0
// What `ferryctl top` shows, as tables: made of two answers of each daemon, since rates are their
// difference. Pure; any thread.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ferry/admin/v1/admin.pb.h"

namespace ferry::tools {

using Activity = ferry::admin::v1::GetActivityResponse;

// What is known of one daemon.
struct DaemonSample {
  std::string runtime_dir;
  std::optional<Activity> now;  // its last answer; none if that is too old to be shown
  std::optional<Activity>
      before;               // the one before, of the same life: without it there are no rates
  std::string node;         // its name, once it was heard
  bool begun_anew = false;  // it has another life than when it was first heard
  std::string trouble;      // why the last call brought nothing; "": it did, or none was made
  absl::Duration unheard;   // since the last answer, or since the first call
};

struct TopCell {
  std::string text;                                          // as it was said, perhaps by a client
  double number = std::numeric_limits<double>::quiet_NaN();  // to sort by; NaN: by the text
};

struct TopColumn {
  std::string title;  // "IN GB/S"
  std::string name;   // for programs: "in_bytes_per_second"
  bool number = false;
};

struct TopTable {
  std::string name;  // "devices"
  std::vector<TopColumn> columns;
  std::vector<std::vector<TopCell>> rows;
  size_t sorted_by = 0;    // a column
  bool ascending = false;  // else the largest is first

  // By `sorted_by`; what is equal there stays in its order.
  void Sort();
};

// In their order on the screen.
enum class TopPart { kDaemons, kDevices, kRoutes, kPeers, kSessions, kTransfers };
inline constexpr size_t kTopParts = 6;

// All of them, by TopPart, sorted by what they are sorted by at first.
std::vector<TopTable> TopTables(const std::vector<DaemonSample>& daemons);

// One line for programs: {"daemons":[{...}],...}; numbers are not rounded.
std::string TopJson(const std::vector<TopTable>& tables);

}  // namespace ferry::tools
