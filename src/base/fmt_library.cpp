// The compiled half of fmt, once for the whole library. fmt's header-only form repeats it in every
// file, which costs each about five seconds of compile time; Debian has no static library of it.
//
// Compiled without inlining (see CMakeLists.txt): the function templates that formatting uses are
// then emitted here, for the files that only declare them. The two below are declared extern.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
