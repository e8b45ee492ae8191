// Words of the canonical line for the values of each enumeration; one table each.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "deepgemm/types.h"

namespace deepgemm::intent {

struct Word {
  int value;
  const char* name;
};

std::span<const Word> operation_words();
std::span<const Word> role_words();
std::span<const Word> activation_words();
std::span<const Word> physical_layout_words();
std::span<const Word> memory_space_words();
std::span<const Word> access_pattern_words();
std::span<const Word> outlier_words();
std::span<const Word> dequant_words();
std::span<const Word> reproducibility_words();
std::span<const Word> prefetch_words();
std::span<const Word> precision_words();

// nullptr when unknown.
const char* word_of(std::span<const Word> words, int value);
const Word* find_word(std::span<const Word> words, std::string_view name);

// "none, relu, gelu": for messages.
std::string list_words(std::span<const Word> words);
// The word with the fewest edits from `text`; empty when `words` is empty.
std::string nearest_word(std::span<const Word> words, std::string_view text);

}  // namespace deepgemm::intent
