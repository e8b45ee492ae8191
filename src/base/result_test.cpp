#include "base/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace deepgemm::base {
namespace {

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9') {
    return make_error(DEEPGEMM_ERROR_FORMAT, "'{}' is no digit; give 0 ... 9.", c);
  }
  return c - '0';
}

Result<int> add_digits(char a, char b) {
  DEEPGEMM_TRY_ASSIGN(first, parse_digit(a));
  DEEPGEMM_TRY_ASSIGN(second, parse_digit(b));
  return first + second;
}

Result<void> check_digit(char c, int& evaluations) {
  DEEPGEMM_TRY((++evaluations, parse_digit(c)));
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = parse_digit('7');
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 7);
  const Result<int> bad = parse_digit('x');
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, DEEPGEMM_ERROR_FORMAT);
  EXPECT_EQ(bad.error().message, "'x' is no digit; give 0 ... 9.");
}

TEST(Result, PassesTheFirstErrorOn) {
  EXPECT_EQ(*add_digits('2', '3'), 5);
  EXPECT_EQ(add_digits('a', 'b').error().message, "'a' is no digit; give 0 ... 9.");
  EXPECT_EQ(add_digits('1', 'b').error().message, "'b' is no digit; give 0 ... 9.");
}

TEST(Result, TryEvaluatesItsExpressionOnce) {
  int evaluations = 0;
  EXPECT_TRUE(check_digit('1', evaluations).ok());
  EXPECT_EQ(evaluations, 1);
  const Result<void> bad = check_digit('?', evaluations);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, DEEPGEMM_ERROR_FORMAT);
  EXPECT_EQ(evaluations, 2);
}

TEST(Result, HoldsTypesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(4);
  const std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 4);
}

TEST(Result, RefusesAccessToAValueThatIsNotThere) {
  const Result<int> bad = parse_digit('x');
  EXPECT_THROW((void)bad.value(), std::bad_variant_access);
}

}  // namespace
}  // namespace deepgemm::base
