// SPDX-License-Identifier: Apache-2.0
#include "compute/host/chain_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "compute/numerics/convert.h"

namespace ferry::compute {
namespace {

bool IsHeld(DType type) { return type == DType::kF32 || type == DType::kBF16; }

struct Codes {
  ChainCode code;
  ChainCode from = code;  // if what is at hand is the second operand
  bool exact = false;     // the result is one of the operands' type without rounding
};

std::optional<Codes> CodesOf(Op op) {
  switch (op) {
    case Op::kAdd:
      return Codes{ChainCode::kAdd};
    case Op::kSubtract:
      return Codes{ChainCode::kSubtract, ChainCode::kSubtractFrom};
    case Op::kMultiply:
      return Codes{ChainCode::kMultiply};
    case Op::kDivide:
      return Codes{ChainCode::kDivide, ChainCode::kDivideFrom};
    case Op::kMaximum:
      return Codes{ChainCode::kMaximum, ChainCode::kMaximum, true};
    case Op::kMinimum:
      return Codes{ChainCode::kMinimum, ChainCode::kMinimum, true};
    case Op::kClamp:
      return Codes{ChainCode::kMaximum, ChainCode::kMaximum, true};
    case Op::kNegate:
      return Codes{ChainCode::kNegate, ChainCode::kNegate, true};
    case Op::kAbs:
      return Codes{ChainCode::kAbs, ChainCode::kAbs, true};
    case Op::kSqrt:
      return Codes{ChainCode::kSqrt};
    default:
      return std::nullopt;
  }
}

class Joiner {
 public:
  Joiner(const std::vector<TileOp>& once, const std::vector<TileOp>& loads,
         const std::vector<TileOp>& stores, std::vector<TileOp>& ops)
      : ops_(ops), visited_(ops.size()) {
    for (const TileOp& op : once) {
      if (op.out.empty()) continue;
      std::optional<float> value;
      if (op.kind == TileOp::Kind::kFill && IsHeld(op.type)) {
        value = DecodeFloat(op.type, static_cast<uint32_t>(op.code));
      }
      same_[op.out[0]] = value;
    }
    for (const std::vector<TileOp>* part : {&std::as_const(ops), &stores}) {
      for (const TileOp& op : *part) {
        for (const uint32_t in : op.in) ++uses_[in];
      }
    }
    // What is made where it is to be.
    for (const TileOp& op : loads) {
      for (const uint32_t out : op.out) ++uses_[out];
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const uint32_t out : ops[i].out) definitions_[out] = i;
      if (!MayBeIn(ops[i])) continue;
      for (const uint32_t in : ops[i].in) held_users_[in] = i;
    }
  }

  void Run() {
    for (size_t i = 0; i < ops_.size(); ++i) {
      // What only a chain needs is made right before.
      const uint32_t out = ops_[i].out.empty() ? 0 : ops_[i].out[0];
      if (MayBeIn(ops_[i]) && uses_[out] == 1 && held_users_.count(out) > 0) continue;
      Visit(i);
    }
    for (const size_t i : order_) Put(ops_[i]);
    Close();
    ops_ = std::move(made_);
  }

 private:
  static bool MayBeIn(const TileOp& op) {
    if (op.level != TileLevel::kFull || !IsHeld(op.from) || !IsHeld(op.type)) return false;
    if (op.kind == TileOp::Kind::kConvert) return op.from != op.type;
    return op.kind == TileOp::Kind::kKernel && op.from == op.type && CodesOf(op.op).has_value();
  }
  // Which operands may be what is at hand.
  static bool MayBeAt(const TileOp& op, size_t operand) {
    return op.kind == TileOp::Kind::kConvert || op.op != Op::kClamp || operand == 1;
  }

  void Visit(size_t i) {
    if (visited_[i]) return;
    visited_[i] = true;
    const TileOp& op = ops_[i];
    std::optional<size_t> last;
    for (size_t k = 0; k < op.in.size(); ++k) {
      const auto made = definitions_.find(op.in[k]);
      if (made == definitions_.end()) continue;
      const bool follows = !last && MayBeIn(op) && MayBeAt(op, k) && !visited_[made->second] &&
                           MayBeIn(ops_[made->second]);
      if (follows) {
        last = made->second;
      } else if (made->second != last) {
        Visit(made->second);
      }
    }
    if (last) Visit(*last);
    order_.push_back(i);
  }

  void Add(ChainCode code) { chain_.chain.push_back({code, ChainForm::kF32, kNone}); }
  void Add(ChainCode code, uint32_t operand, DType type) {
    const auto same = same_.find(operand);
    const bool is_same = same != same_.end();
    if (is_same && same->second && !std::isnan(*same->second) && *same->second != 0) {
      if (code == ChainCode::kMaximum) code = ChainCode::kMaximumSure;
      if (code == ChainCode::kMinimum) code = ChainCode::kMinimumSure;
    }
    const ChainForm form = type == DType::kF32
                               ? (is_same ? ChainForm::kSameF32 : ChainForm::kF32)
                               : (is_same ? ChainForm::kSameBF16 : ChainForm::kBF16);
    chain_.chain.push_back({code, form, operand});
    std::vector<uint32_t>& list = code == ChainCode::kStore ? chain_.out : chain_.in;
    list.push_back(operand);
  }

  void Put(const TileOp& op) {
    if (!MayBeIn(op)) {
      Close();
      made_.push_back(op);
      return;
    }
    std::optional<size_t> at;
    for (size_t k = 0; k < op.in.size() && !at && !chain_.chain.empty(); ++k) {
      if (op.in[k] == at_hand_ && MayBeAt(op, k)) at = k;
    }
    if (at) {
      if (uses_[at_hand_] > 1) Add(ChainCode::kStore, at_hand_, type_);
    } else {
      Close();
      for (size_t k = 0; k < op.in.size() && !at; ++k) {
        if (MayBeAt(op, k) && same_.count(op.in[k]) == 0) at = k;
      }
      if (!at) at = MayBeAt(op, 0) ? 0 : 1;
      chain_.kind = TileOp::Kind::kChain;
      Add(ChainCode::kLoad, op.in[*at], op.from);
    }
    if (op.kind == TileOp::Kind::kConvert) {
      if (op.type == DType::kBF16) Add(ChainCode::kRound);
    } else {
      const Codes codes = *CodesOf(op.op);
      if (op.op == Op::kClamp) {
        Add(ChainCode::kMaximum, op.in[0], op.from);
        Add(ChainCode::kMinimum, op.in[2], op.from);
      } else if (op.in.size() == 2) {
        Add(*at == 0 ? codes.code : codes.from, op.in[1 - *at], op.from);
      } else {
        Add(codes.code);
      }
      if (op.type == DType::kBF16 && !codes.exact) Add(ChainCode::kRound);
    }
    at_hand_ = op.out[0];
    type_ = op.type;
  }

  void Close() {
    if (chain_.chain.empty()) return;
    // A store of bf16 rounds itself. One of f32 does not: the bf16 was converted back.
    if (type_ == DType::kBF16 && chain_.chain.back().code == ChainCode::kRound) {
      chain_.chain.pop_back();
    }
    Add(ChainCode::kStore, at_hand_, type_);
    made_.push_back(std::move(chain_));
    chain_ = TileOp();
  }

  static constexpr uint32_t kNone = TileFusion::kNoMemory;

  std::vector<TileOp>& ops_;
  std::map<uint32_t, std::optional<float>> same_;  // by register of which all is the same
  std::map<uint32_t, int> uses_;
  std::map<uint32_t, size_t> definitions_;
  std::map<uint32_t, size_t> held_users_;
  std::vector<bool> visited_;
  std::vector<size_t> order_;
  std::vector<TileOp> made_;
  TileOp chain_;  // open if it has steps
  uint32_t at_hand_ = 0;
  DType type_ = DType::kF32;
};

}  // namespace

void JoinChains(const std::vector<TileOp>& once, const std::vector<TileOp>& loads,
                const std::vector<TileOp>& stores, std::vector<TileOp>& ops) {
  Joiner(once, loads, stores, ops).Run();
}

}  // namespace ferry::compute
