// SPDX-License-Identifier: Apache-2.0
// Programs in C++17: a builder of a program's text, compiling it, running it. Header only, as
// ferry.hpp is. ferry.h says what the calls mean, docs/programs.md what the ops mean. A
// ProgramBuilder belongs to one thread at a time. A Program may be used by any threads, until one
// of them destroys it.
//
//   ferry::ProgramBuilder builder;
//   const ferry::TensorType type{FERRY_F32, {1024}};
//   auto x = builder.Input("x", type);
//   builder.Store("y", builder.Convert(builder.Multiply(x, builder.Splat(0.5, type)), FERRY_BF16));
//   auto program = ferry::Program::Compile(session, device, builder.Text());
//   auto batch = ferry::RunPrograms(session, device, {program->Run({{"x", in}, {"y", out}})});
//   if (ferry::Status status = batch->Wait(); !status.ok()) return Fail(status);
#ifndef FERRY_PROGRAM_HPP_
#define FERRY_PROGRAM_HPP_

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ferry/ferry.hpp"

namespace ferry {

// A buffer of a program and the range that it is bound to: see ferry_binding.
struct Binding {
  std::string name;
  Range range = {};
  int data_type = FERRY_UNSPECIFIED;  // FERRY_...: must be the program's; UNSPECIFIED: not compared
  // Prepared jobs only: the transfers that bring or take these bytes, or a part of them, not none.
  // They must outlive the job.
  const Prepared* transfers = nullptr;
};

// One run of a program. The program must outlive the call that posts the run.
struct ProgramRun {
  const ferry_program* program = nullptr;
  std::vector<Binding> bindings;
  std::optional<Transfer::DefinedAt> defined_at = std::nullopt;
  Duration deadline{0};          // 0: the batch's
  const Batch* after = nullptr;  // the run begins when this batch has ended well
  // Advanced when the run has ended well.
  std::optional<Transfer::DefinedAt> defines = std::nullopt;
  const Batch* feeds = nullptr;  // poisoned if the run fails
  // If the program sends or receives: the global device of each peer that it names, and what its
  // keys end with in this run.
  std::vector<std::pair<std::string, uint64_t>> peers = {};
  std::string key_suffix = {};
};

class Program {
 public:
  Program() = default;
  explicit Program(ferry_program* owned) : program_(owned) {}

  static Result<Program> Compile(const Session& session, uint64_t device, std::string_view text) {
    ferry_program* program = nullptr;
    Status status(ferry_program_compile(session.get(), device, text.data(), text.size(), &program));
    if (!status.ok()) return Result<Program>(std::move(status));
    return Program(program);
  }

  std::string_view fingerprint() const {
    return {reinterpret_cast<const char*>(ferry_program_fingerprint(program_.get())),
            FERRY_FINGERPRINT_BYTES};
  }
  std::string_view plan() const { return ferry_program_plan(program_.get()); }
  uint64_t scratch_bytes() const { return ferry_program_scratch_bytes(program_.get()); }
  std::vector<ferry_program_buffer> buffers() const {
    std::vector<ferry_program_buffer> all(ferry_program_buffers(program_.get()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = ferry_program_buffer_at(program_.get(), i);
    return all;
  }
  ProgramRun Run(std::vector<Binding> bindings) const {
    return {program_.get(), std::move(bindings)};
  }
  ferry_program* get() const { return program_.get(); }

 private:
  struct Free {
    void operator()(ferry_program* program) const { ferry_program_free(program); }
  };
  std::unique_ptr<ferry_program, Free> program_;
};

// Runs as the C ABI takes them; points into the runs that it was made of.
class RawRuns {
 public:
  explicit RawRuns(const std::vector<ProgramRun>& runs)
      : bindings_(runs.size()), peers_(runs.size()), raw_(runs.size()) {
    for (size_t i = 0; i < runs.size(); ++i) {
      for (const Binding& binding : runs[i].bindings) {
        bindings_[i].push_back({binding.name.c_str(), binding.range, binding.data_type,
                                binding.transfers != nullptr ? binding.transfers->get() : nullptr});
      }
      ferry_run& raw = raw_[i];
      raw.program = runs[i].program;
      raw.bindings = DataOrNull(bindings_[i]);
      raw.binding_count = bindings_[i].size();
      if (runs[i].defined_at) {
        raw.has_defined_at = 1;
        raw.defined_timeline = runs[i].defined_at->timeline;
        raw.defined_value = runs[i].defined_at->value;
      }
      raw.deadline_ns = Nanoseconds(runs[i].deadline);
      if (runs[i].after != nullptr) raw.after = runs[i].after->get();
      if (runs[i].defines) {
        raw.defines_timeline = runs[i].defines->timeline;
        raw.defines_value = runs[i].defines->value;
      }
      if (runs[i].feeds != nullptr) raw.feeds = runs[i].feeds->get();
      for (const auto& [name, device] : runs[i].peers) {
        peers_[i].push_back({name.c_str(), device});
      }
      raw.peers = DataOrNull(peers_[i]);
      raw.peer_count = peers_[i].size();
      raw.key_suffix = DataOrNull(runs[i].key_suffix);
      raw.key_suffix_bytes = runs[i].key_suffix.size();
    }
  }
  const ferry_run* data() const { return raw_.data(); }
  size_t size() const { return raw_.size(); }

 private:
  std::vector<std::vector<ferry_binding>> bindings_;
  std::vector<std::vector<ferry_peer>> peers_;
  std::vector<ferry_run> raw_;
};

inline Result<Batch> RunPrograms(const Session& session, uint64_t device,
                                 const std::vector<ProgramRun>& runs,
                                 const PostOptions& options = {}) {
  const RawRuns raw(runs);
  const ferry_post_options given = options.Raw();
  ferry_batch* batch = nullptr;
  Status status(ferry_run_programs(session.get(), device, raw.data(), raw.size(), &given, &batch));
  if (!status.ok()) return Result<Batch>(std::move(status));
  return Batch(batch);
}

// Jobs that are fired again and again: see ferry_prepare_programs.
inline Result<Prepared> PreparePrograms(const Session& session, uint64_t device,
                                        const std::vector<ProgramRun>& runs,
                                        const PostOptions& options = {}) {
  const RawRuns raw(runs);
  const ferry_post_options given = options.Raw();
  ferry_prepared* prepared = nullptr;
  Status status(
      ferry_prepare_programs(session.get(), device, raw.data(), raw.size(), &given, &prepared));
  if (!status.ok()) return Result<Prepared>(std::move(status));
  return Prepared(prepared);
}

// An element type, such as FERRY_F32, and dimensions.
struct TensorType {
  int element = FERRY_UNSPECIFIED;
  std::vector<int64_t> dims;
};

// Writes a program's text, one op after the other. A buffer is declared by its first use, and is as
// large as the furthest byte that is read or written of it. The builder checks nothing; compiling
// does, and names lines of Text(). It has no loops (`repeat`), numerics of a whole program
// (`accumulation`, `allow_reassociation`), strides in buffers or `copy`: a program with these is
// written as text.
class ProgramBuilder {
 public:
  class Value {
   public:
    const TensorType& type() const { return type_; }

   private:
    friend class ProgramBuilder;
    Value(size_t number, TensorType type) : number_(number), type_(std::move(type)) {}
    size_t number_;
    TensorType type_;
  };

  // Names an op of this builder, for After.
  class Mark {
    friend class ProgramBuilder;
    explicit Mark(size_t op) : op_(op) {}
    size_t op_;
  };

  // Adds any op, with one result of each of `types`. `attributes` are as in the text:
  // "mode=saturate".
  std::vector<Value> Op(std::string_view op, const std::vector<Value>& operands,
                        std::string_view attributes, const std::vector<TensorType>& types) {
    return Append(op, "", operands, attributes, types);
  }
  Value Op(std::string_view op, const std::vector<Value>& operands, std::string_view attributes,
           TensorType type) {
    return Append(op, "", operands, attributes, {std::move(type)}).front();
  }
  // Adds an op of one or more operands whose result has the type of the first operand.
  Value Elementwise(std::string_view op, const std::vector<Value>& operands) {
    return Op(op, operands, "", operands.front().type());
  }

  Value Input(const std::string& buffer, TensorType type, uint64_t offset = 0) {
    Use(buffer, FERRY_READ, type, offset);
    return Append("input", buffer, {}, Offset(offset), {std::move(type)}).front();
  }
  void Store(const std::string& buffer, const Value& value, uint64_t offset = 0) {
    Use(buffer, FERRY_WRITE, value.type(), offset);
    Append("store", buffer, {value}, Offset(offset), {});
  }
  // buffer += value
  void Accumulate(const std::string& buffer, const Value& value, uint64_t offset = 0) {
    Use(buffer, FERRY_READ_WRITE, value.type(), offset);
    Append("accumulate", buffer, {value}, Offset(offset), {});
  }
  // Of an old and a new value of one type: bitmap, values, count and checksum of the new one. There
  // is room for `capacity` blocks of `block` bytes, a power of two from 64 to 4,096.
  std::vector<Value> DeltaEncode(const Value& before, const Value& after, int64_t capacity,
                                 int64_t block) {
    uint64_t elements = 1;
    for (const int64_t dim : after.type().dims) elements *= static_cast<uint64_t>(dim);
    const uint64_t bytes = (elements * Bits(after.type().element) + 7) / 8;
    const uint64_t of_word = 32 * static_cast<uint64_t>(block);
    const auto words = static_cast<int64_t>((bytes + of_word - 1) / of_word);
    return Op(
        "delta_encode", {before, after}, "",
        {{FERRY_U32, {words}}, {FERRY_U8, {capacity, block}}, {FERRY_U32, {}}, {FERRY_U64, {2}}});
  }
  // Writes a delta of `bytes` bytes over what the buffer has from `offset` on.
  void DeltaApply(const std::string& buffer, const Value& bitmap, const Value& values,
                  const Value& count, uint64_t bytes, uint64_t offset = 0) {
    Use(buffer, FERRY_READ_WRITE, {FERRY_U8, {static_cast<int64_t>(bytes)}}, offset);
    Append("delta_apply", buffer, {bitmap, values, count},
           "bytes=" + std::to_string(bytes) + (offset == 0 ? "" : " " + Offset(offset)), {});
  }
  // 128 bits, u64[2].
  Value Checksum(const Value& value) {
    return Op("checksum", {value}, "", TensorType{FERRY_U64, {2}});
  }
  // Sends to, and receives from, the device that the run names for `peer` (ProgramRun::peers). With
  // `parts`, 2 to 64, as that many transfers of rows of dimension 0, by the keys KEY/0, KEY/1, ...:
  // what makes or uses the value is done in parts too. The other end says as many.
  void Send(const Value& value, const std::string& peer, const std::string& key, int parts = 0) {
    Append("send", "", {value}, Travel(peer, key, parts), {});
  }
  Value Receive(const std::string& peer, const std::string& key, TensorType type, int parts = 0) {
    return Op("recv", {}, Travel(peer, key, parts), std::move(type));
  }
  // A run may destroy what the buffer held.
  void Donate(const std::string& buffer) { At(buffer).donated = true; }

  // The buffer holds the same bytes in all firings of a prepared job, which keeps what it computes
  // from them.
  void Constant(const std::string& buffer) { At(buffer).constant = true; }

  // `value` in all elements: a number of any arithmetic type of C++, rounded once, to the element
  // type. Compiling refuses a number that the type cannot hold: a fraction in an integer, a number
  // out of range. Infinity and NaN are written as bytes: Op("constant", {}, "splat=x0000807f",
  // type).
  template <typename Number>
  Value Splat(Number value, TensorType type) {
    static_assert(std::is_arithmetic_v<Number>, "a number");
    return Op("constant", {}, "splat=" + NumberText(value, type.element), std::move(type));
  }
  Value Convert(const Value& value, int element, std::string_view attributes = "") {
    return Op("convert", {value}, attributes, TensorType{element, value.type().dims});
  }
  // `dimensions[i]`: the dimension of the result that dimension i of the operand becomes.
  Value Broadcast(const Value& value, const std::vector<int64_t>& dimensions,
                  std::vector<int64_t> dims) {
    return Op("broadcast_in_dim", {value}, "dimensions=" + List(dimensions),
              TensorType{value.type().element, std::move(dims)});
  }
  Value Add(const Value& a, const Value& b) { return Elementwise("add", {a, b}); }
  Value Subtract(const Value& a, const Value& b) { return Elementwise("subtract", {a, b}); }
  Value Multiply(const Value& a, const Value& b) { return Elementwise("multiply", {a, b}); }
  Value Divide(const Value& a, const Value& b) { return Elementwise("divide", {a, b}); }
  Value Maximum(const Value& a, const Value& b) { return Elementwise("maximum", {a, b}); }
  Value Minimum(const Value& a, const Value& b) { return Elementwise("minimum", {a, b}); }

  // These are about the op that was added last. Label() is its name in problems and plans. After()
  // lists ops that must be over before it begins, where the values that it uses do not say so.
  void Label(std::string_view label) { ops_.back().label = label; }
  Mark Last() const { return Mark(ops_.size() - 1); }
  void After(const std::vector<Mark>& ops) {
    for (const Mark& mark : ops) {
      ops_[mark.op_].marked = true;
      ops_.back().after.push_back(mark.op_);
    }
  }

  std::string Text() const {
    std::string text = "program 1\n";
    for (const Buffer& buffer : buffers_) {
      static const char* const kAccess[] = {"read", "read", "write", "read_write"};
      text += "buffer @" + buffer.name + " " + kAccess[buffer.access] + " " +
              std::to_string(buffer.bytes) + (buffer.donated ? " donated" : "") +
              (buffer.constant ? " constant\n" : "\n");
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].marked) text += "^" + std::to_string(i) + ": ";
      text += ops_[i].text;
      const char* separator = " after ^";
      for (const size_t other : ops_[i].after) {
        text += separator + std::to_string(other);
        separator = ", ^";
      }
      if (!ops_[i].label.empty()) text += " " + Quoted(ops_[i].label);
      text += "\n";
    }
    return text;
  }

 private:
  struct Buffer {
    std::string name;
    int access = 0;
    uint64_t bytes = 0;
    bool donated = false;
    bool constant = false;
  };

  struct Line {
    std::string text;  // the line without what is added later:
    bool marked = false;
    std::vector<size_t> after = {};
    std::string label = {};
  };

  // The shortest text that reads back as exactly `value`.
  template <typename Number>
  static std::string NumberText(Number value, int element) {
    if (element == FERRY_PRED && value == Number(0)) return "false";
    if (element == FERRY_PRED && value == Number(1)) return "true";
    if constexpr (std::is_integral_v<Number>) {
      return std::to_string(value);
    } else {
      const double number = static_cast<double>(value);
      std::array<char, 512> text = {};  // the largest has 309 digits
      char* const end = text.data() + text.size();
      const bool whole = IsInteger(element) && number == std::trunc(number);
      const auto written = whole ? std::to_chars(text.data(), end, number, std::chars_format::fixed)
                                 : std::to_chars(text.data(), end, number);
      return std::string(text.data(), written.ptr);
    }
  }
  static bool IsInteger(int element) { return element >= FERRY_PRED && element <= FERRY_U64; }
  static const char* NameOf(int element) {
    static const char* const kNames[] = {
        "?",   "bool", "i8",  "i16", "i32", "i64", "u8",       "u16",    "u32",       "u64",
        "f16", "bf16", "f32", "f64", "?",   "?",   "f8e4m3fn", "f8e5m2", "f8e8m0fnu", "f4e2m1fn"};
    return element >= 0 && element <= FERRY_F4E2M1FN ? kNames[element] : "?";
  }
  static uint64_t Bits(int element) {
    static const int kBits[] = {0,  8,  8,  16, 32, 64, 8, 16, 32, 64,
                                16, 16, 32, 64, 0,  0,  8, 8,  8,  4};
    return element >= 0 && element <= FERRY_F4E2M1FN ? static_cast<uint64_t>(kBits[element]) : 0;
  }
  static std::string List(const std::vector<int64_t>& numbers) {
    std::string text = "[";
    for (const int64_t number : numbers) {
      text += (text.size() > 1 ? "," : "") + std::to_string(number);
    }
    return text + "]";
  }
  static std::string Quoted(const std::string& bytes) {
    std::string text = "\"";
    for (const char c : bytes) {
      char escaped[8] = {c};
      if (c < ' ' || c > '~' || c == '"' || c == '\\') {
        std::snprintf(escaped, sizeof(escaped), "\\%03o", static_cast<unsigned char>(c));
      }
      text += escaped;
    }
    return text + "\"";
  }
  static std::string Travel(const std::string& peer, const std::string& key, int parts) {
    return "peer=" + Quoted(peer) + " key=" + Quoted(key) +
           (parts == 0 ? "" : " parts=" + std::to_string(parts));
  }
  static std::string Offset(uint64_t offset) {
    return offset == 0 ? "" : "offset=" + std::to_string(offset);
  }

  Buffer& At(const std::string& name) {
    for (Buffer& buffer : buffers_) {
      if (buffer.name == name) return buffer;
    }
    buffers_.push_back({name});
    return buffers_.back();
  }
  void Use(const std::string& name, int access, const TensorType& type, uint64_t offset) {
    Buffer& buffer = At(name);
    buffer.access |= access;  // both are the third
    uint64_t elements = 1;
    for (const int64_t dim : type.dims) elements *= static_cast<uint64_t>(dim);
    const uint64_t end = offset + (elements * Bits(type.element) + 7) / 8;
    if (end > buffer.bytes) buffer.bytes = end;
  }
  std::vector<Value> Append(std::string_view op, const std::string& buffer,
                            const std::vector<Value>& operands, std::string_view attributes,
                            const std::vector<TensorType>& types) {
    std::vector<Value> results;
    std::string names, shown;
    for (const TensorType& type : types) {
      results.push_back(Value(values_++, type));
      names += (names.empty() ? "%" : ", %") + std::to_string(results.back().number_);
      shown += (shown.empty() ? " : " : ", ") + std::string(NameOf(type.element)) + List(type.dims);
    }
    std::string line = (names.empty() ? names : names + " = ") + std::string(op);
    const char* separator = " ";
    if (!buffer.empty()) {
      line += " @" + buffer;
      separator = ", ";
    }
    for (const Value& operand : operands) {
      line += separator + ("%" + std::to_string(operand.number_));
      separator = ", ";
    }
    if (!attributes.empty()) line += " " + std::string(attributes);
    ops_.push_back({line + shown});
    return results;
  }

  std::vector<Buffer> buffers_;
  std::vector<Line> ops_;
  size_t values_ = 0;
};

}  // namespace ferry

#endif  // FERRY_PROGRAM_HPP_
