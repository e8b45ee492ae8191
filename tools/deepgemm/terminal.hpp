// Output: results to standard output, everything else to standard error.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepgemm::cli {

void write_output(std::string_view text);

template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

// False when standard output took less than was written; errno then has the reason.
bool flush_output();

// Whether standard output takes colours: a terminal, and NO_COLOR not set (https://no-color.org).
bool colored_output();
enum class Color : uint8_t { kGreen, kRed, kBold };
std::string paint(Color color, std::string_view text);

// A bar on standard error, when that is a terminal; else nothing. Erased by the destructor.
class Progress {
 public:
  explicit Progress(int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows what runs now; `done` steps are complete.
  void show(int64_t done, std::string_view what);
  // Takes the bar away before a row is printed.
  void clear();

 private:
  int64_t steps_;
  bool active_;
  bool shown_ = false;
};

// Lines of cells, padded to the widest cell of their column, two spaces apart. Columns whose title
// begins with '>' are aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> titles);

  void add(std::vector<std::string> row);
  // Every line begins with `indent` and ends with a newline; no trailing spaces.
  std::string text(std::string_view indent = "") const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Text broken at spaces into lines of at most `width` columns; lines after the first begin with
// `indent` spaces. Ends with a newline.
std::string wrapped(std::string_view text, size_t width, size_t indent);

// "1.23 us", "45.6 ms": three digits.
std::string time_text(double us);
// "3.4e-05", and "0" for zero.
std::string error_text(double value);
// "24.0 KiB"
std::string bytes_text(double bytes);

}  // namespace deepgemm::cli
