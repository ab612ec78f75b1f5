// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <limits>

#include "allocator/plain_pickle.h"
#include "export/value_writer.h"

namespace tidegauge {
namespace {

template <typename Writer, typename Write>
std::string written(const Write& write) {
  std::string file;
  Writer out([&](std::string_view piece) { file += piece; });
  write(out);
  out.finish();
  return file;
}

void write_some(ValueWriter& out) {
  out.begin_map();
  out.key("a");
  out.begin_list();
  out.number(-1);
  out.boolean(true);
  out.pair(2, 3);
  out.begin_map();
  out.end_map();
  out.end_list();
  out.key("b");
  out.text("a");
  out.end_map();
}

TEST(JsonWriter, SeparatesAndNests) {
  EXPECT_EQ(written<JsonWriter>(write_some), R"({"a":[-1,true,[2,3],{}],"b":"a"})");
}

TEST(JsonWriter, EscapesControlCharactersQuotesAndBackslashes) {
  const auto text = [](std::string_view value) {
    return written<JsonWriter>([&](ValueWriter& out) { out.text(value); });
  };
  EXPECT_EQ(text("a\"b\\c\n\x01\x7f"), R"("a\"b\\c\u000a\u0001\u007f")");
  EXPECT_EQ(text("\xC3\xBC\xFF"), "\"\xC3\xBC\xEF\xBF\xBD\"");
}

TEST(JsonWriter, ThousandthsAreExact) {
  const auto text = [](int64_t value) {
    return written<JsonWriter>([&](JsonWriter& out) { out.thousandths(value); });
  };
  EXPECT_EQ(text(1234567), "1234.567");
  EXPECT_EQ(text(5), "0.005");
  EXPECT_EQ(text(-1010), "-1.010");
  EXPECT_EQ(text(std::numeric_limits<int64_t>::min()), "-9223372036854775.808");
}

TEST(PickleWriter, WritesEachTextOnce) {
  using namespace std::string_literals;
  EXPECT_EQ(written<PickleWriter>(write_some),
            "\x80\x04}(\x8c\x01"
            "a\x94](J\xff\xff\xff\xff\x88K\x02K\x03\x86}(ue\x8c\x01"
            "b\x94h\x00u."s);
}

TEST(PickleWriter, LongListsAreAppendedInPieces) {
  const std::string file = written<PickleWriter>([](ValueWriter& out) {
    out.begin_list();
    for (int i = 0; i < 2500; ++i) out.number(7);
    out.end_list();
  });
  EXPECT_EQ(std::count(file.begin(), file.end(), 'e'), 3);
  EXPECT_EQ(find_pickle_fault(file), std::nullopt);
}

TEST(PickleWriter, SharedValuesAreWrittenOnce) {
  int calls = 0;
  const std::string file = written<PickleWriter>([&](ValueWriter& out) {
    out.begin_list();
    for (int i = 0; i < 3000; ++i) {
      out.shared(9, [&] {
        ++calls;
        out.begin_list();
        out.end_list();
      });
    }
    out.end_list();
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(find_pickle_fault(file), std::nullopt);
}

}  // namespace
}  // namespace tidegauge
