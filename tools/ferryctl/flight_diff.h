// SPDX-License-Identifier: Apache-2.0
// Compares what two nodes know of their transfers (two answers of GetFlight) and says which side
// lacks what, in the words of a transfer key. Pure: nothing is asked, nothing is opened. Any
// thread.
//
// Only transfers with both devices on the two nodes can be judged; the others are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ferry/admin/v1/admin.pb.h"

namespace ferry::tools {

using Flight = ferry::admin::v1::GetFlightResponse;

struct FlightDiff {
  // One side posted its half, the other did not.
  struct Lack {
    std::string node;                // that lacks its half
    std::string side;                // which: "send" or "receive"
    std::string key;                 // "key 'a' from device 0 to device 2"
    std::string has;                 // what the other side has
    std::vector<std::string> hints;  // what is known of why, the likeliest first
  };
  // Both sides have their halves, and it is not over.
  struct Pair {
    std::string key;
    std::string send;  // "launched for 3.2 s; waits for its launch"
    std::string receive;
    std::vector<std::string> hints;  // prepared: whose word has not advanced
  };
  std::vector<Lack> lacks;  // the oldest first
  std::vector<Pair> pairs;
  uint64_t elsewhere = 0;            // transfers with other nodes
  std::vector<std::string> remarks;  // what limits the comparison
};

FlightDiff CompareFlights(const Flight& a, const Flight& b);

// For people, at most `limit` of each kind; and for programs.
std::string FlightDiffText(const FlightDiff& diff, size_t limit);
std::string FlightDiffJson(const FlightDiff& diff);

}  // namespace ferry::tools
