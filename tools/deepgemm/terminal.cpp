#include "deepgemm/terminal.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "base/env.hpp"

namespace deepgemm::cli {
namespace {

int output_error = 0;  // errno of the first failed write

constexpr int kBarWidth = 24;
constexpr const char* kEraseLine = "\r\x1b[K";

// Columns that UTF-8 text takes, when no character is wider than one.
size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && output_error == 0) {
    output_error = errno;
  }
}

bool flush_output() {
  if (std::fflush(stdout) != 0 && output_error == 0) output_error = errno;
  errno = output_error;
  return output_error == 0;
}

bool colored_output() {
  static const bool colored = isatty(STDOUT_FILENO) != 0 && !base::env("NO_COLOR");
  return colored;
}

std::string paint(Color color, std::string_view text) {
  if (!colored_output()) return std::string(text);
  constexpr const char* kCodes[] = {"32", "31", "1"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(color)], text);
}

Progress::Progress(int64_t steps)
    : steps_(std::max<int64_t>(steps, 1)), active_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::show(int64_t done, std::string_view what) {
  if (!active_) return;
  const auto filled = static_cast<size_t>(kBarWidth * std::min(done, steps_) / steps_);
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  const std::string line =
      fmt::format("{}[{}] {}/{} {}", kEraseLine, bar, done, steps_, what.substr(0, 60));
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) std::fputs(kEraseLine, stderr);
  shown_ = false;
}

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    right_.push_back(title.starts_with('>'));
    if (right_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> row) {
  row.resize(right_.size());
  rows_.push_back(std::move(row));
}

std::string Table::text(std::string_view indent) const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string result;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      line += (i == 0 ? "" : "  ") + (right_[i] ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + '\n';
  }
  return result;
}

std::string wrapped(std::string_view text, size_t width, size_t indent) {
  std::string result;
  size_t column = 0;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (column > 0 && column + 1 + display_width(word) > width) {
      result += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (start > 0) {
      result += ' ';
      ++column;
    }
    result += word;
    column += display_width(word);
    start = end + 1;
  }
  return result + '\n';
}

std::string time_text(double us) {
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.3g} ms", us / 1e3);
  return fmt::format("{:.3g} us", us);
}

std::string error_text(double value) { return value == 0 ? "0" : fmt::format("{:.1e}", value); }

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace deepgemm::cli
