// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/ArrayFile.h"
#include "Outcome.h"
#include "refold/Support/Error.h"
#include <gtest/gtest.h>

using namespace refold;

static std::string npy(llvm::StringRef dict, llvm::StringRef data,
                       int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(version), 0, static_cast<char>(dict.size()),
            static_cast<char>(dict.size() >> 8)};
  if (version > 1)
    bytes += {0, 0};
  return bytes + dict.str() + data.str();
}

static std::string messageOf(llvm::Expected<Tensor> tensor) {
  if (tensor)
    return "no error";
  std::string message;
  takeError(tensor.takeError(), message);
  return message;
}

TEST(ArrayFileTest, RoundTripsEveryType) {
  for (DType dtype : {DType::F64, DType::F32, DType::F16, DType::BF16,
                      DType::F8E4M3, DType::F8E5M2, DType::I64, DType::I32,
                      DType::I8, DType::U8, DType::Bool})
    for (llvm::SmallVector<int64_t> shape :
         {llvm::SmallVector<int64_t>{}, {3}, {2, 3}, {0, 4}, {2, 1, 2}}) {
      Tensor tensor = llvm::cantFail(Tensor::create(dtype, shape));
      for (int64_t i = 0; i < tensor.numElements(); ++i)
        tensor.set(i, static_cast<double>(i % 2));
      std::string bytes = llvm::cantFail(formatNpy(tensor));
      EXPECT_EQ((bytes.size() - tensor.numBytes()) % 64, 0u);
      auto again = parseNpy(bytes, "x.npy", dtype);
      ASSERT_TRUE(static_cast<bool>(again));
      EXPECT_EQ(again->dtype(), dtype);
      EXPECT_EQ(again->shape(), tensor.shape());
      for (int64_t i = 0; i < tensor.numElements(); ++i)
        EXPECT_EQ(again->get(i), tensor.get(i));
    }
}

TEST(ArrayFileTest, ReadsFortranOrderAndBigEndian) {
  // Columns of [[1, 2], [3, 4]], high bytes first.
  std::string data("\0\1\0\3\0\2\0\4", 8), wide;
  for (size_t i = 0; i < 8; i += 2)
    wide += std::string(2, '\0') + data.substr(i, 2);
  auto tensor = parseNpy(
      npy("{'descr': '>i4', 'fortran_order': True, 'shape': (2, 2), }\n", wide),
      "x");
  ASSERT_TRUE(static_cast<bool>(tensor));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(tensor->get(i), i + 1);
}

TEST(ArrayFileTest, ReadsHeadersAsPythonWritesThem) {
  for (llvm::StringRef dict :
       {"{\"shape\":(1,),\"descr\":'|u1','fortran_order':False}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1L,), }   \n"}) {
    auto tensor = parseNpy(npy(dict, "A", 2), "x");
    ASSERT_TRUE(static_cast<bool>(tensor)) << dict.str();
    EXPECT_EQ(tensor->get(0), 65);
  }
}

TEST(ArrayFileTest, RefusesWithPlaceFoundAndExpected) {
  EXPECT_EQ(
      messageOf(parseNpy(
          npy("{'descr': '<c8', 'fortran_order': False, 'shape': ()}", ""),
          "x.npy")),
      "x.npy: byte 20: found ''<c8',', expected a type of f8 f4 f2 i8 i4 i1 u1 "
      "b1 V2 (bf16) V1 (f8) "
      "after its byte order");
  EXPECT_EQ(messageOf(parseNpy(
                npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                    "1234"),
                "x.npy")),
            "x.npy: byte 65: found 4 bytes of data, expected 8");
  EXPECT_EQ(messageOf(parseNpy(npy("{'descr': '<f4', 'fortran_order': False, "
                                   "'shape': (4294967296, 4294967296)}",
                                   ""),
                               "x.npy")),
            "x.npy: byte 10: found a shape beyond 2^62 bytes");
}

/// No prefix of a good file is good, and none makes the parser read beyond it.
TEST(ArrayFileTest, RefusesEveryPrefix) {
  Tensor tensor = llvm::cantFail(Tensor::create(DType::F32, {2, 3}));
  std::string whole = llvm::cantFail(formatNpy(tensor));
  std::string zipped = llvm::cantFail(
      formatNpz({NamedTensor{"a", tensor}, NamedTensor{"b", tensor}}));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(messageOf(parseNpy(std::string(whole, 0, size), "x")), "no error")
        << size;
  for (size_t size = 0; size < zipped.size(); ++size)
    EXPECT_TRUE(fails(parseNpz(std::string(zipped, 0, size), "x"))) << size;
  EXPECT_EQ(messageOf(parseNpy(whole, "x")), "no error");
}

TEST(ArrayFileTest, NpzRoundTripsAndNoticesFlippedBits) {
  Tensor tensor = llvm::cantFail(Tensor::create(DType::F32, {2, 3}));
  tensor.set(4, 7.0);
  std::string bytes = llvm::cantFail(
      formatNpz({NamedTensor{"a", tensor}, NamedTensor{"b", tensor}}));
  auto again = parseNpz(bytes, "x.npz");
  ASSERT_TRUE(static_cast<bool>(again));
  ASSERT_EQ(again->size(), 2u);
  EXPECT_EQ((*again)[1].name, "b");
  EXPECT_EQ((*again)[1].tensor.get(4), 7.0);
  EXPECT_EQ(bytes, llvm::cantFail(formatNpz(*again)));
  size_t data = bytes.find("NUMPY") + 100;
  bytes[data] ^= 1;
  EXPECT_TRUE(fails(parseNpz(bytes, "x.npz")));
}
