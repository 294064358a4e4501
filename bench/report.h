// SPDX-License-Identifier: Apache-2.0
// The rows of the speed table: what was measured, what it is compared with, and whether it is good
// enough. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ferry::bench {

struct Row {
  std::string name;            // "256 MiB mapped"
  std::string unit;            // "GB/s", "us", "transfers/s", "bytes"
  std::optional<double> cold;  // with first touch of the destination
  double warm = 0;
  std::string peer;  // what it is compared with; empty: the target is absolute
  std::optional<double> peer_cold;
  std::optional<double> peer_warm;
  bool at_most = false;  // true: the target is an upper bound; false: a lower bound
  // For warm / peer_warm, or for warm without a peer; nothing: the row only informs
  std::optional<double> target;

  double measured() const { return peer_warm ? warm / *peer_warm : warm; }
  bool passed() const {
    return !target || (at_most ? measured() <= *target : measured() >= *target);
  }
};

class Report {
 public:
  void Add(Row row) { rows_.push_back(std::move(row)); }
  const std::vector<Row>& rows() const { return rows_; }
  std::string ToTable() const;
  std::string ToJson(const std::string& command, const std::string& machine) const;

 private:
  std::vector<Row> rows_;
};

}  // namespace ferry::bench
