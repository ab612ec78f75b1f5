// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "allocator/plain_pickle.h"

namespace tidegauge {
namespace {

using namespace std::string_literals;

std::string fault(const std::string& data) { return find_pickle_fault(data).value_or("none"); }

TEST(PlainPickle, PlainValuesOfAllProtocolsPass) {
  EXPECT_EQ(fault("(dp0\nS'a'\np1\nI1\ns."s), "none");                                      // 0
  EXPECT_EQ(fault("\x80\x02}q\x00(X\x01\x00\x00\x00\x61q\x01K\x01u."s), "none");            // 2
  EXPECT_EQ(fault("\x80\x04\x95\x08\0\0\0\0\0\0\0}\x94\x8c\x01\x61\x94K\x01s."s), "none");  // 4
}

TEST(PlainPickle, ObjectsAreRefused) {
  for (const std::string& data :
       {"cos\nsystem\n."s, "(ios\nsystem\n."s, "\x80\x04\x8c\x02os\x8c\x06system\x93."s, "Pid\n."s,
        "K\x01Q."s, "\x82\x01."s, "\x83\x01\x00."s, "\x84\x01\0\0\0."s, "NNR."s, "NNb."s, "(No."s,
        "NN\x81."s, "NNN\x92."s, "\x97."s, "N\x98."s}) {
    EXPECT_EQ(fault(data).substr(0, 8), "refused:") << data;
  }
}

TEST(PlainPickle, OtherFormatsAreReported) {
  EXPECT_EQ(fault("{\"segments\": []}"),
            "damaged, or another format: byte 0 is not a pickle opcode");
}

TEST(PlainPickle, LengthsMustLieWithinTheFile) {
  EXPECT_EQ(fault("\x8c\x05"s + "ab."), "damaged at byte 0: invalid length or number");
  EXPECT_NE(fault("N\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s), "none");
  EXPECT_NE(fault("\x8b\xff\xff\xff\x7f."s), "none");
  EXPECT_NE(fault("S'no end of the line"s), "none");
  EXPECT_NE(fault("J\x01\x02"s), "none");
}

TEST(PlainPickle, MemoPositionsMustExist) {
  // Python's reader would allocate space for two billion objects.
  EXPECT_NE(fault("Nr\xff\xff\xff\x7f."s), "none");
  EXPECT_NE(fault("Np2000000000\n."s), "none");
  EXPECT_NE(fault("Np-1\n."s), "none");
  EXPECT_NE(fault("Npx\n."s), "none");
  EXPECT_EQ(fault("Nr\x01\0\0\0."s), "none");
}

TEST(PlainPickle, KeysMustBeTextsOrSmallNumbers) {
  // 40 tuples, each of the one before twice: hashing the last one takes 2^40 steps.
  std::string doubling = "\x80\x04)";
  for (int i = 0; i < 40; ++i) doubling += "2\x86";
  const std::string message =
      "damaged, or another format: the pickle uses a key that is neither a text nor a small number";
  for (const std::string& data :
       {"}"s + doubling + "Ns.", "}("s + doubling + "Nu.", "("s + doubling + "Nd.",
        "}K\x01"s + doubling + "\x94" + "0(" + "h\0"s + "Nu."}) {
    EXPECT_EQ(fault(data).substr(0, message.size()), message) << data;
  }
  // All multiples of 2^61 - 1 have the hash 0, so n keys would take n^2 steps.
  for (const std::string& number :
       {"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x1f"s, "L2305843009213693951L\n"s,
        "I2305843009213693951\n"s, "G\x43\xc0\0\0\0\0\0\0"s}) {
    EXPECT_EQ(fault("}" + number + "Ns.").substr(0, message.size()), message) << number;
  }
  EXPECT_EQ(fault("}(K\x01NM\x01\x01NJ\x01\x01\x01\x01Nu."), "none");
  EXPECT_EQ(fault("}(K\x01)X\x01\0\0\0a}u."s), "none") << "values may be anything";
  EXPECT_NE(fault("\x8f("s + doubling + "\x90."), "none") << "a set";
}

TEST(PlainPickle, OnlyEmptyDictionariesAreMade) {
  const auto fault = [](const std::string& data) {
    return find_pickle_fault(data, PickledObjects::DefaultDicts).value_or("none");
  };
  const std::string type = "\x8c\x0b" + "collections\x94\x8c\x0b"s + "defaultdict\x93\x94"s;
  EXPECT_EQ(fault(type + ")R(K\x01K\x02u."), "none");
  EXPECT_EQ(fault(type + ")R" + "h\x01)RK\x01Ns."), "none") << "from the memo";
  const std::string number = "\x8c\x08"s + "builtins\x8c\x03"s + "int\x93"s;
  EXPECT_EQ(fault(type + number + "\x85R."), "none");
  EXPECT_NE(fault(number + ")R."), "none");
  EXPECT_NE(fault(number + "K\x01\x85R."), "none");
  EXPECT_NE(fault(type + number + "K\x01\x86R."), "none");
  EXPECT_EQ(find_pickle_fault(type + ")R.").value_or("none").substr(0, 8), "refused:");
  for (const std::string& data :
       {type + "N\x85R."s,                // with a factory
        type + "(l\x85R."s,               // with keys and values
        type + ")b."s, type + ")\x81."s,  // by another opcode
        "\x8c\x02os\x8c\x06system\x93."s, "\x8c\x0b" + "collections\x8c\x05"s + "deque\x93."s,
        "ccollections\ndefaultdict\n)R."s, "K\x01)R."s, ")R."s, "R."s, "\x93."s}) {
    EXPECT_NE(fault(data), "none") << data;
  }
  EXPECT_NE(fault("}" + type + "Ns."), "none") << "a class is no key";
}

TEST(PlainPickle, EveryOpcodeHasItsValues) {
  for (const std::string& data : {"0."s, "s."s, "Ns."s, "u."s, "t."s, "\x86."s, "(0."s, "h\x00."s,
                                  "q\x00."s, "g1\n."s, "2."s}) {
    EXPECT_EQ(fault(data).substr(0, 26), "damaged, or another format") << data;
  }
}

TEST(PlainPickle, MissingEndIsReportedAsTruncated) {
  EXPECT_EQ(fault(""), "truncated: the end of the pickle is missing");
  EXPECT_EQ(fault("NNN"), "truncated: the end of the pickle is missing");
  EXPECT_EQ(fault("N.cos\nsystem\n"), "none") << "bytes after the end are not read";
}

TEST(PlainPickle, RandomBytesAreReadSafely) {
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string data(random() % 40, '\0');
    for (char& c : data) c = static_cast<char>(random());
    find_pickle_fault(data);
    find_pickle_fault(data, PickledObjects::DefaultDicts);
  }
}

}  // namespace
}  // namespace tidegauge
