// SPDX-License-Identifier: Apache-2.0
// Threads of the library take no signals: those are the application's, and so are its handlers.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/thread_limit_text.h"
#include "client/status.h"

namespace ferry::client {

// Blocks all signals on this thread, and so in threads that it starts, while it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// `name`: at most 15 bytes.
inline StatusPtr StartThread(const char* name, std::function<void()> body, std::thread* thread) {
  SignalsBlocked blocked;
  try {
    *thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return Error(kResourceExhausted, kReasonNotReady,
                 std::string("starting thread ") + name + ": " + error.what() + ThreadLimitText());
  }
  pthread_setname_np(thread->native_handle(), name);
  return nullptr;
}

}  // namespace ferry::client
