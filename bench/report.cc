// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/ferryctl/format.h"

namespace ferry::bench {
namespace {

std::string Number(std::optional<double> value) {
  if (!value) return "-";
  if (*value >= 1000) return tools::HumanCount(static_cast<uint64_t>(*value + 0.5));
  return absl::StrFormat("%.3g", *value);
}

nlohmann::ordered_json OrNull(std::optional<double> value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string Report::ToTable() const {
  constexpr auto kRight = tools::Table::Align::kRight;
  tools::Table table({{"CASE"},
                      {"UNIT"},
                      {"COLD", kRight},
                      {"WARM", kRight},
                      {"AGAINST"},
                      {"COLD", kRight},
                      {"WARM", kRight},
                      {"RATIO", kRight},
                      {"TARGET", kRight},
                      {""}});
  for (const Row& row : rows_) {
    const std::string ratio = row.peer_warm ? absl::StrFormat("%.2f", row.measured()) : "-";
    std::string target = "-";
    if (row.target) {
      target =
          absl::StrCat(row.at_most ? "<= " : ">= ",
                       row.peer_warm ? absl::StrFormat("%.3g", *row.target) : Number(row.target));
    }
    table.AddRow({row.name, row.unit, Number(row.cold), Number(row.warm),
                  row.peer.empty() ? "-" : row.peer, Number(row.peer_cold), Number(row.peer_warm),
                  ratio, target,
                  !row.target    ? ""
                  : row.passed() ? "pass"
                                 : "FAIL"});
  }
  return table.ToString();
}

std::string Report::ToJson(const std::string& command, const std::string& machine) const {
  nlohmann::ordered_json out = {{"command", command}, {"machine", machine}};
  out["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    out["rows"].push_back({{"case", row.name},
                           {"unit", row.unit},
                           {"cold", OrNull(row.cold)},
                           {"warm", row.warm},
                           {"against", row.peer},
                           {"against_cold", OrNull(row.peer_cold)},
                           {"against_warm", OrNull(row.peer_warm)},
                           {"measured", row.measured()},
                           {"bound", row.at_most ? "at most" : "at least"},
                           {"target", OrNull(row.target)},
                           {"passed", row.passed()}});
  }
  return out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace ferry::bench
