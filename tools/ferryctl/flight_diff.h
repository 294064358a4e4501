// SPDX-License-Identifier: Apache-2.0
// Compares what two nodes know of their transfers (two answers of GetFlight), and says for each
// transfer key which side lacks what. Only transfers with both devices on the two nodes can be
// judged; the others are counted. Pure: asks nothing and opens nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ferry/admin/v1/admin.pb.h"

namespace ferry::tools {

using Flight = ferry::admin::v1::GetFlightResponse;

struct FlightDiff {
  // A transfer of which one side has posted its half and the other has not.
  struct Lack {
    std::string node;                // the node that lacks its half
    std::string side;                // the half that is missing: "send" or "receive"
    std::string key;                 // "key 'a' from device 0 to device 2"
    std::string has;                 // what the other side has
    std::vector<std::string> hints;  // possible reasons, the likeliest first
  };
  // A transfer that both sides have posted and that is not over.
  struct Pair {
    std::string key;
    std::string send;  // "launched for 3.2 s; waits for its launch"
    std::string receive;
    std::vector<std::string> hints;  // for prepared transfers: whose word has not advanced
  };
  std::vector<Lack> lacks;  // the oldest first
  std::vector<Pair> pairs;
  uint64_t elsewhere = 0;            // transfers with other nodes
  std::vector<std::string> remarks;  // what the comparison could not see
};

FlightDiff CompareFlights(const Flight& a, const Flight& b);

// The result for people, with at most `limit` of each kind; and for programs.
std::string FlightDiffText(const FlightDiff& diff, size_t limit);
std::string FlightDiffJson(const FlightDiff& diff);

}  // namespace ferry::tools
