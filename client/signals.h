// SPDX-License-Identifier: Apache-2.0
// Keeps signals off the library's threads: signals and their handlers are the application's. Any
// thread.
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

// Blocks all signals on this thread while the object lives, and for good on threads that it starts.
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

// Starts `body` on a thread with all signals blocked. `name`: at most 15 bytes. RESOURCE_EXHAUSTED
// if the system has no thread left.
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
