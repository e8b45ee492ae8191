// The product of a few rows of A with packed weights, each word of which is read once and goes from
// memory to the sums in registers. Gives the bits of load_words() and multiply().
#pragma once

#include "kernels/cpu/fma_tile.hpp"
#include "kernels/cpu/words.hpp"

namespace deepgemm::cpu {
namespace {

// Sums of kRows rows and kPanels panels, their channels in ascending order.
template <WordFormat kFormat, int kRows, bool kScaled>
struct Stream {
  static constexpr int kPanels = stream_panels(kVectorBytes, kRows);
  static constexpr int kPerWord = channels_per_word(kFormat);
  static constexpr int kVectors = kPanels * kPanelVectors;

  FloatVector sum[kVectors][kRows] = {};
  FloatVector zero[kVectors] = {}, scale[kVectors] = {};

  // Prepares a group of channels.
  [[gnu::always_inline]] void move_to(const GroupLanes* lanes, int64_t panel_lanes) {
    unrolled<kVectors>([&](auto v) {
      const GroupLanes& group = lanes[v.kValue / kPanelVectors * panel_lanes];
      constexpr int kColumn = v.kValue % kPanelVectors * kFloatLanes;
      zero[v.kValue] = zeros_of(group, kColumn);
      scale[v.kValue] = load<FloatVector>(group.scale + kColumn);
    });
  }

  // One row of words of each panel.
  [[gnu::always_inline]] void add(const uint32_t* words, int64_t panel_words, const float* a) {
    unrolled<kVectors>([&](auto v) {
      const WordVector word = load<WordVector>(words + v.kValue / kPanelVectors * panel_words +
                                               v.kValue % kPanelVectors * kFloatLanes);
      unrolled<kPerWord>([&](auto channel) {
        FloatVector value = decode<kFormat>(word, channel.kValue);
        if constexpr (kScaled && is_integer(kFormat)) value -= zero[v.kValue];
        if constexpr (kScaled) value *= scale[v.kValue];
        unrolled<kRows>([&](auto i) {
          sum[v.kValue][i.kValue] += a[i.kValue * kStripeStride + channel.kValue] * value;
        });
      });
    });
  }

  void store_sums(double* to, int64_t stride) const {
    unrolled<kRows>([&](auto i) {
      unrolled<kVectors>([&](auto v) {
        add_to(to + i.kValue * stride + v.kValue * kFloatLanes, sum[v.kValue][i.kValue]);
      });
    });
  }
};

template <WordFormat kFormat, int kRows, bool kScaled>
void stream(const StreamArguments& arguments) {
  using Sums = Stream<kFormat, kRows, kScaled>;
  Sums sums;
  const GroupLanes* lanes = arguments.lanes;
  const uint32_t* words = arguments.words;
  const float* a = arguments.a;
  int64_t run = kScaled ? arguments.group_left : arguments.channels;
  for (int64_t left = arguments.channels; left > 0; left -= run, run = arguments.group_size) {
    if constexpr (kScaled) sums.move_to(lanes++, arguments.panel_lanes);
    const float* const end = a + (run < left ? run : left);
    for (; a < end; a += Sums::kPerWord, words += kPanel) {
      sums.add(words, arguments.panel_words, a);
    }
  }
  sums.store_sums(arguments.sums, arguments.sums_stride);
}

}  // namespace
}  // namespace deepgemm::cpu
