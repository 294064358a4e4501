// SPDX-License-Identifier: Apache-2.0
// Makes the tables of `ferryctl top` from two answers of each daemon; their difference gives the
// rates. Pure; any thread.
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
  std::optional<Activity> now;     // its last answer; nothing if it is too old to be shown
  std::optional<Activity> before;  // the answer before, of the same life; nothing: no rates
  std::string node;                // its node's name, once an answer said it
  bool begun_anew = false;         // it was restarted since its first answer
  std::string trouble;     // why the last call brought no answer; "": it did, or there was no call
  absl::Duration unheard;  // since the last answer, or since the first call
};

struct TopCell {
  std::string text;                                          // as it was said, perhaps by a client
  double number = std::numeric_limits<double>::quiet_NaN();  // to sort by; NaN: sorted by the text
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
  size_t sorted_by = 0;    // index of a column
  bool ascending = false;  // false: the largest is first

  // Sorts by `sorted_by`. Equal rows stay in their order.
  void Sort();
};

// The tables, in their order on the screen.
enum class TopPart { kDaemons, kDevices, kRoutes, kPeers, kSessions, kTransfers };
inline constexpr size_t kTopParts = 6;

// All tables, by TopPart, each in its first order.
std::vector<TopTable> TopTables(const std::vector<DaemonSample>& daemons);

// One line of JSON: {"daemons":[{...}],...}; numbers are not rounded.
std::string TopJson(const std::vector<TopTable>& tables);

}  // namespace ferry::tools
