#include "trainer/data/packed_rows.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/philox.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {
namespace {

// Gives for each row, in the order given, the window that it goes to.
class BestFit {
 public:
  explicit BestFit(int64_t context) : with_room_(static_cast<size_t>(context) + 1) {}

  int64_t Place(int64_t places) {
    const auto context = static_cast<int64_t>(with_room_.size()) - 1;
    const auto found = rooms_.lower_bound(places);
    int64_t room = context;
    int64_t window = windows_;
    if (found == rooms_.end()) {
      ++windows_;
    } else {
      room = *found;
      std::vector<int64_t>& candidates = with_room_[static_cast<size_t>(room)];
      window = candidates.back();
      candidates.pop_back();
      if (candidates.empty()) rooms_.erase(found);
    }
    const int64_t left = room - places;
    if (left > 0) {
      with_room_[static_cast<size_t>(left)].push_back(window);
      rooms_.insert(left);
    }
    return window;
  }

  int64_t windows() const { return windows_; }

 private:
  std::vector<std::vector<int64_t>> with_room_;  // windows by the places that are free
  std::set<int64_t> rooms_;                      // that with_room_ has windows for
  int64_t windows_ = 0;
};

}  // namespace

PackedRows::PackedRows(const TokenRows& rows, int64_t context, bool pack, uint64_t seed)
    : rows_(rows), context_(context), order_(static_cast<size_t>(rows.rows())) {
  std::iota(order_.begin(), order_.end(), int64_t{0});
  for (const int64_t row : order_) {
    filled_ += Places(row);
    if (rows_.Size(row) - 1 > context) ++truncated_rows_;
  }
  if (!pack) {
    ends_.resize(order_.size());
    std::iota(ends_.begin(), ends_.end(), int64_t{1});
    return;
  }
  const auto rank = [&](int64_t row) {
    return Random64(seed, RandomStream::kOrder, ~uint64_t{0}, static_cast<uint64_t>(row));
  };
  std::sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
    if (Places(a) != Places(b)) return Places(a) > Places(b);
    const uint64_t rank_a = rank(a), rank_b = rank(b);
    return rank_a != rank_b ? rank_a < rank_b : a < b;
  });
  BestFit fit(context);
  std::vector<int64_t> window_of(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) window_of[i] = fit.Place(Places(order_[i]));
  ends_.assign(static_cast<size_t>(fit.windows()), 0);
  for (const int64_t window : window_of) ++ends_[static_cast<size_t>(window)];
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  std::vector<int64_t> next(ends_.size(), 0);
  std::copy(ends_.begin(), ends_.end() - (ends_.empty() ? 0 : 1),
            next.begin() + (ends_.empty() ? 0 : 1));
  std::vector<int64_t> by_window(order_.size());
  for (size_t i = 0; i < order_.size(); ++i) {
    by_window[static_cast<size_t>(next[static_cast<size_t>(window_of[i])]++)] = order_[i];
  }
  order_ = std::move(by_window);
}

bool PackedRows::Learns(int64_t row) const {
  return PromptTokens(rows_.Words(row), Places(row) + 1) <= Places(row);
}

bool PackedRows::HasLearned() const {
  return std::any_of(order_.begin(), order_.end(), [&](int64_t row) { return Learns(row); });
}

int64_t PackedRows::RowWithoutLearned() const {
  const auto found =
      std::find_if(order_.begin(), order_.end(), [&](int64_t row) { return !Learns(row); });
  return found == order_.end() ? -1 : *found;
}

int64_t PackedRows::Places(int64_t row) const { return std::min(rows_.Size(row) - 1, context_); }

int64_t PackedRows::Fill(int64_t window, int64_t vocabulary, const WindowSlot& slot) const {
  const int64_t first = window == 0 ? 0 : ends_[static_cast<size_t>(window) - 1];
  int64_t scored = 0;
  int64_t at = 0;
  rows_.CheckWhole();
  for (int64_t i = first; i < ends_[static_cast<size_t>(window)]; ++i) {
    const int64_t row = order_[static_cast<size_t>(i)];
    const uint32_t* words = rows_.Words(row);
    const int64_t begin = at, places = Places(row);
    if (places < 1 || at + places > context_) {
      throw DataError("read data " + rows_.path() + ": its rows changed while they were in use");
    }
    for (int64_t t = 0; t < places; ++t, ++at) {
      const int64_t next = words[t + 1] & ~kLearnedBit;
      const bool learned = (words[t + 1] & kLearnedBit) != 0;
      slot.inputs[at] = words[t] & ~kLearnedBit;
      slot.targets[at] = learned ? next : kIgnore;
      slot.starts[at] = begin;
      if (learned) ++scored;
      if (slot.inputs[at] >= vocabulary || next >= vocabulary) {
        throw DataError(Format("read data %s: row %lld has token %lld; the model has %lld",
                               rows_.path().c_str(), static_cast<long long>(row),
                               static_cast<long long>(std::max(slot.inputs[at], next)),
                               static_cast<long long>(vocabulary)),
                        "prepare the data with this model");
      }
    }
  }
  rows_.CheckWhole();  // what was read behind the end of a file was nothing
  std::fill(slot.inputs + at, slot.inputs + context_, 0);
  std::fill(slot.targets + at, slot.targets + context_, kIgnore);
  std::fill(slot.starts + at, slot.starts + context_, at);
  return scored;
}

}  // namespace gpuctl::trainer
