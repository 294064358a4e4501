// SPDX-License-Identifier: Apache-2.0
// Two hosts on one machine, as far as TCP is concerned: network namespaces joined by one cable, the
// kernel's or one that harms packets. What runs in them still shares files and Unix sockets. Needs
// root. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/packet_cable.h"

namespace ferry::testing {

class NetworkNamespaces {
 public:
  enum Cable { kOfTheKernel, kOfPackets };
  // Null, and why, where there is no right to make them.
  static std::unique_ptr<NetworkNamespaces> Create(Cable cable, std::string* why);
  ~NetworkNamespaces();
  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;

  // Of host i: 0 or 1.
  std::string address(size_t i) const;
  std::string address6(size_t i) const;
  // One more of host i, "192.0.2.101/24", on the cable.
  void AddAddress(size_t i, const std::string& address);
  // A further interface of host i, with this address, that leads nowhere.
  void AddInterface(size_t i, const std::string& name, const std::string& address);
  // Goes before a command line to run it there.
  std::vector<std::string> launcher(size_t i) const;

  // Pulls the cable out of host 0, or puts it back: what is sent meanwhile is gone.
  void SetCable(bool plugged);
  // The cable takes so much from either end, and what does not fit waits for at most 50 ms.
  void SetRate(const std::string& rate);  // as of tc: "400mbit"
  // Of kOfPackets only.
  PacketCable& packets() { return *packets_; }

 private:
  NetworkNamespaces();
  bool AwaitRunning(size_t i);
  std::string name(size_t i) const { return prefix_ + std::to_string(i); }
  const std::string prefix_;
  std::unique_ptr<PacketCable> packets_;
};

}  // namespace ferry::testing
