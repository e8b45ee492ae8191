// The compiled half of fmt (versions 9 and 10), once for the whole library. fmt's header-only form
// repeats it in every file, which costs each about five seconds of compile time; Debian has no
// static library of it.
//
// Compiled without inlining (see CMakeLists.txt): the function templates that formatting uses are
// then emitted here, for the files that only declare them. Those below are declared extern, the
// last three since version 10.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void vformat_to(buffer<char>&, string_view, format_args, locale_ref);
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
}  // namespace detail
FMT_END_NAMESPACE
