// SPDX-License-Identifier: Apache-2.0
// Each op has a hash of what it is and of the hashes of what it needs, so neither its number nor
// its place in the text matters; a program is the sorted hashes of its ops that have effects.
#include "compute/program/fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/check.h"

namespace ferry::compute {
namespace {

// Bytes that say what was added and can say nothing else: numbers have 8, the rest has its length
// before it.
class Encoding {
 public:
  explicit Encoding(absl::string_view kind) { Add(kind); }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<char>(number >> shift));
    }
  }
  void Add(absl::string_view text) {
    Add(uint64_t{text.size()});
    bytes_.append(text.data(), text.size());
  }
  void Add(const Fingerprint& hash) {
    bytes_.append(reinterpret_cast<const char*>(hash.data()), hash.size());
  }
  void Add(std::vector<Fingerprint> hashes) {
    std::sort(hashes.begin(), hashes.end());
    Add(uint64_t{hashes.size()});
    for (const Fingerprint& hash : hashes) Add(hash);
  }
  void Add(const TensorType& type) {
    Add(NameOf(type.dtype));
    Add(uint64_t{type.dims.size()});
    for (const int64_t dim : type.dims) Add(static_cast<uint64_t>(dim));
  }
  Fingerprint Hash() const {
    Fingerprint hash;
    unsigned int size = 0;
    FERRY_CHECK(
        EVP_Digest(bytes_.data(), bytes_.size(), hash.data(), &size, EVP_sha256(), nullptr) == 1 &&
        size == hash.size());
    return hash;
  }

 private:
  std::string bytes_;
};

// Names, not indices of tables: these may be reordered.
void AddAttributes(const Attributes& attributes, Encoding& encoding) {
  encoding.Add(uint64_t{attributes.entries().size()});
  for (const auto& [attribute, value] : attributes.entries()) {
    const AttributeInfo& info = InfoOf(attribute);
    encoding.Add(info.name);
    if (const auto* bytes = std::get_if<std::string>(&value)) {
      encoding.Add(*bytes);
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      encoding.Add(uint64_t{list->size()});
      for (const int64_t number : *list) encoding.Add(static_cast<uint64_t>(number));
    } else if (info.kind == AttributeKind::kWord) {
      encoding.Add(info.words[std::get<int64_t>(value)]);
    } else {
      encoding.Add(static_cast<uint64_t>(std::get<int64_t>(value)));
    }
  }
}

class Hasher {
 public:
  explicit Hasher(const Program& program)
      : program_(program), ops_(program.nodes.size()), values_(program.types.size()) {}

  Fingerprint Run() {
    const std::vector<Fingerprint> effects = HashBlock(0, program_.nodes.size(), 0);
    std::vector<Fingerprint> buffers;
    for (const Buffer& buffer : program_.buffers) {
      Encoding encoding("buffer");
      encoding.Add(absl::string_view(buffer.name));
      encoding.Add(static_cast<uint64_t>(buffer.access));
      encoding.Add(buffer.bytes);
      encoding.Add(uint64_t{buffer.donated} + 2 * uint64_t{buffer.constant});
      buffers.push_back(encoding.Hash());
    }
    Encoding encoding("program 1");
    encoding.Add(kAccumulationNames[static_cast<size_t>(program_.numerics.accumulation)]);
    encoding.Add(uint64_t{program_.numerics.allow_reassociation});
    encoding.Add(buffers);
    encoding.Add(effects);
    return encoding.Hash();
  }

 private:
  // The hashes of the ops from `begin` to `end` that have effects.
  std::vector<Fingerprint> HashBlock(size_t begin, size_t end, uint64_t depth) {
    std::vector<Fingerprint> effects;
    for (size_t i = begin; i < end; i += program_.nodes[i].body + 1) {
      if (HashOp(i, depth)) effects.push_back(ops_[i]);
    }
    return effects;
  }

  // Has it an effect?
  bool HashOp(size_t index, uint64_t depth) {
    const Node& node = program_.nodes[index];
    bool effect = InfoOf(node.op).effect == Effect::kSideEffecting;
    Encoding encoding("op");
    encoding.Add(InfoOf(node.op).name);
    encoding.Add(uint64_t{node.operands.size()});
    for (const ValueId value : node.operands) encoding.Add(values_[value]);
    for (const uint32_t buffer : node.buffers) {
      encoding.Add(absl::string_view(program_.buffers[buffer].name));
    }
    AddAttributes(node.attributes, encoding);
    for (const TensorType& type : program_.ResultTypes(node)) encoding.Add(type);
    std::vector<Fingerprint> after;
    for (const OpIndex other : node.after) after.push_back(ops_[other]);
    encoding.Add(std::move(after));
    if (node.op == Op::kRepeat) {
      for (size_t i = 0; i < node.parameters(); ++i) {
        Encoding parameter("parameter");
        parameter.Add(depth);
        parameter.Add(uint64_t{i});
        values_[node.first_parameter() + i] = parameter.Hash();
      }
      std::vector<Fingerprint> effects = HashBlock(index + 1, index + 1 + node.body, depth + 1);
      effect = !effects.empty();
      for (const ValueId value : node.yielded) encoding.Add(values_[value]);
      encoding.Add(std::move(effects));
    }
    ops_[index] = encoding.Hash();
    for (uint32_t i = 0; i < node.results; ++i) {
      Encoding result("result");
      result.Add(ops_[index]);
      result.Add(uint64_t{i});
      values_[node.first_result + i] = result.Hash();
    }
    return effect;
  }

  const Program& program_;
  std::vector<Fingerprint> ops_;
  std::vector<Fingerprint> values_;
};

}  // namespace

Fingerprint FingerprintOf(const Program& program) { return Hasher(program).Run(); }

std::string ToString(const Fingerprint& fingerprint) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(fingerprint.data()), fingerprint.size()));
}

}  // namespace ferry::compute
