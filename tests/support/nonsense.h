// SPDX-License-Identifier: Apache-2.0
// Messages, bytes and descriptors that somebody says who means harm, from a seed: any message with
// fields that are plausible, at their bounds, or nothing at all. One thread.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "base/fd.h"

namespace ferry::testing {

class Nonsense {
 public:
  // `lingers`: among the descriptors are sockets whose close() waits. Whoever leaves many of these
  // to a daemon is not served any more, nor is anybody of its uid.
  explicit Nonsense(uint64_t seed, bool lingers = false) : random_(seed), lingers_(lingers) {}

  uint64_t Below(uint64_t end) { return random_() % end; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  // Small ones and ids most of all; powers of two and what lies beside them.
  uint64_t Number();
  std::string Bytes(size_t most);
  // Keys, names and domains that others use too; what is too long.
  std::string Text();
  // Sets fields, of messages within it too; repeated ones now and then to many.
  void Fill(google::protobuf::Message& message, int depth = 0);
  // Of a message: cut, a byte changed, or something behind it.
  std::string Broken(std::string bytes);
  // Of any kind: memfds with and without seals, pipes, eventfds, files, sockets, directories; now
  // and then a socket whose close() waits.
  UniqueFd Descriptor();

 private:
  UniqueFd Lingering();

  std::mt19937_64 random_;
  const bool lingers_;
  std::deque<UniqueFd> unread_;  // the other ends of what lingers
};

}  // namespace ferry::testing
