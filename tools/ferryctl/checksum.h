// SPDX-License-Identifier: Apache-2.0
// SHA-256, by OpenSSL's libcrypto. Any thread; an object by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace ferry::tools {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Add(absl::string_view bytes);
  // Returns 64 hexadecimal digits. Afterwards the object cannot be used.
  std::string Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

std::string Sha256Of(absl::string_view bytes);

}  // namespace ferry::tools
