// SPDX-License-Identifier: Apache-2.0
// Two hosts on one machine, as far as TCP can tell: network namespaces joined by one cable, which
// is the kernel's, or one that harms packets. Programs in them still share files and Unix sockets.
// Needs root. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/packet_cable.h"

namespace ferry::testing {

class NetworkNamespaces {
 public:
  enum Cable { kOfTheKernel, kOfPackets };
  // Null, and the reason in `why`, where this process may not make them.
  static std::unique_ptr<NetworkNamespaces> Create(Cable cable, std::string* why);
  ~NetworkNamespaces();
  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;

  // The addresses of host i, which is 0 or 1.
  std::string address(size_t i) const;
  std::string address6(size_t i) const;
  // Gives host i a further address on the cable, such as "192.0.2.101/24".
  void AddAddress(size_t i, const std::string& address);
  // Gives host i a further interface with this address, which leads nowhere.
  void AddInterface(size_t i, const std::string& name, const std::string& address);
  // Words to put before a command line to run it on host i.
  std::vector<std::string> launcher(size_t i) const;

  // Pulls the cable out of host 0, or plugs it in. What is sent while it is out is lost.
  void SetCable(bool plugged);
  // Bounds the rate of the cable in each direction. What exceeds it waits for at most 50 ms.
  void SetRate(const std::string& rate);  // in tc's form: "400mbit"
  // Only for kOfPackets.
  PacketCable& packets() { return *packets_; }

 private:
  NetworkNamespaces();
  bool AwaitRunning(size_t i);
  std::string name(size_t i) const { return prefix_ + std::to_string(i); }
  const std::string prefix_;
  std::unique_ptr<PacketCable> packets_;
};

}  // namespace ferry::testing
