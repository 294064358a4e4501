// SPDX-License-Identifier: Apache-2.0
// Makes messages, bytes and descriptors that a malicious process might send, from a seed: any
// message, with fields that are plausible, at their bounds, or missing. One thread.
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
  // `lingers`: some descriptors are sockets whose close() blocks. A daemon that is left with many
  // of these stops serving the sender, and everybody of the same uid.
  explicit Nonsense(uint64_t seed, bool lingers = false) : random_(seed), lingers_(lingers) {}

  uint64_t Below(uint64_t end) { return random_() % end; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  // Mostly small numbers and ids; also powers of two and their neighbours.
  uint64_t Number();
  std::string Bytes(size_t most);
  // Keys, names and domains that others use too, and texts that are too long.
  std::string Text();
  // Sets fields, of nested messages too. A repeated field now and then gets many entries.
  void Fill(google::protobuf::Message& message, int depth = 0);
  // The bytes cut short, or with one byte changed, or with more bytes at the end.
  std::string Broken(std::string bytes);
  // A descriptor of any kind: memfds with and without seals, pipes, eventfds, files, sockets,
  // directories; now and then a socket whose close() blocks.
  UniqueFd Descriptor();

 private:
  UniqueFd Lingering();

  std::mt19937_64 random_;
  const bool lingers_;
  std::deque<UniqueFd> unread_;  // the other ends of sockets whose close() blocks
};

}  // namespace ferry::testing
