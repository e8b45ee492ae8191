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
      const GroupLanes& group = lanes[v.value / kPanelVectors * panel_lanes];
      constexpr int kColumn = v.value % kPanelVectors * kFloatLanes;
      zero[v.value] = zeros_of(group, kColumn);
      scale[v.value] = load<FloatVector>(group.scale + kColumn);
    });
  }

  // One row of words of each panel.
  [[gnu::always_inline]] void add(const uint32_t* words, int64_t panel_words, const float* a) {
    unrolled<kVectors>([&](auto v) {
      const WordVector word = load<WordVector>(words + v.value / kPanelVectors * panel_words +
                                               v.value % kPanelVectors * kFloatLanes);
      unrolled<kPerWord>([&](auto channel) {
        FloatVector value = decode<kFormat>(word, channel.value);
        if constexpr (kScaled && is_integer(kFormat)) value -= zero[v.value];
        if constexpr (kScaled) value *= scale[v.value];
        unrolled<kRows>([&](auto i) {
          sum[v.value][i.value] += a[i.value * kStripeStride + channel.value] * value;
        });
      });
    });
  }

  void store_sums(double* to, int64_t stride) const {
    unrolled<kRows>([&](auto i) {
      unrolled<kVectors>([&](auto v) {
        add_to(to + i.value * stride + v.value * kFloatLanes, sum[v.value][i.value]);
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
