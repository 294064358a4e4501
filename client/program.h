// SPDX-License-Identifier: Apache-2.0
// A compiled program: what the daemon said of it; and its text, for a daemon that does not know the
// program or has forgotten it. Constant once made; any thread; owned by the application.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/batch.h"
#include "client/codec.h"
#include "client/handle.h"
#include "client/session.h"

struct ferry_program : ferry::client::Handle<0x7072'6f67'7261'6d05> {
  std::shared_ptr<ferry::client::Session> session;
  uint64_t device = 0;
  std::string text;
  ferry::client::ProgramInfo info;

  const std::string& fingerprint() const { return info.fingerprint; }
};

namespace ferry::client {

StatusPtr CompileProgram(const std::shared_ptr<Session>& session, uint64_t device,
                         std::string_view text, std::unique_ptr<ferry_program>* made);
// Checks the runs, posts them and makes the handle. `batch` names no runs yet, only their number.
StatusPtr RunPrograms(const std::shared_ptr<Session>& session, const ferry_run* runs,
                      PostBatch batch, std::unique_ptr<ferry_batch>* made);

// The same for a prepared batch.
StatusPtr PreparePrograms(const std::shared_ptr<Session>& session, const ferry_run* runs,
                          PostBatch batch, std::unique_ptr<ferry_prepared>* made);

}  // namespace ferry::client
