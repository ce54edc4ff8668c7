// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "WireScanner.h"
#include "refold/Support/Error.h"

using namespace refold;
using namespace refold::onnx;
using llvm::StringRef;

// Field numbers of onnx.proto, and how protobuf spells "length-delimited".
static constexpr uint64_t kModelGraph = 7;
static constexpr uint64_t kGraphInitializer = 5;
static constexpr uint64_t kTensorRawData = 9;
static constexpr unsigned kVarint = 0, kFixed64 = 1, kDelimited = 2,
                          kFixed32 = 5;

namespace {
struct Field {
  uint64_t number = 0;
  unsigned wire = 0;
  StringRef whole;   ///< with its tag
  StringRef payload; ///< of a length-delimited field
};

/// The fields of one message, one after the other.
class Reader {
public:
  Reader(StringRef message, const char *fileBegin)
      : rest(message), fileBegin(fileBegin) {}
  bool atEnd() const { return rest.empty(); }
  llvm::Expected<Field> next();

private:
  llvm::Error broken(const llvm::Twine &what) const {
    return fail(ExitCode::Model, "broken protobuf at byte " +
                                     llvm::Twine(rest.data() - fileBegin) +
                                     ": " + what);
  }
  bool readVarint(uint64_t &value);
  StringRef rest;
  const char *fileBegin;
};
} // namespace

bool Reader::readVarint(uint64_t &value) {
  value = 0;
  for (unsigned index = 0; index < 10 && index < rest.size(); ++index) {
    uint64_t byte = static_cast<unsigned char>(rest[index]);
    value |= (byte & 0x7f) << (7 * index);
    if (!(byte & 0x80)) {
      rest = rest.drop_front(index + 1);
      return true;
    }
  }
  return false;
}

llvm::Expected<Field> Reader::next() {
  const char *begin = rest.data();
  uint64_t tag, length = 0;
  if (!readVarint(tag))
    return broken("the tag of a field does not end; expected a varint of at "
                  "most 10 bytes");
  Field field;
  field.number = tag >> 3;
  field.wire = tag & 7;
  switch (field.wire) {
  case kVarint: {
    uint64_t ignored;
    if (!readVarint(ignored))
      return broken("a number does not end; expected a varint of at most 10 "
                    "bytes");
    break;
  }
  case kFixed64:
    length = 8;
    break;
  case kFixed32:
    length = 4;
    break;
  case kDelimited:
    if (!readVarint(length))
      return broken("the length of field " + llvm::Twine(field.number) +
                    " does not end; expected a varint of at most 10 bytes");
    break;
  default:
    return broken("wire type " + llvm::Twine(field.wire) +
                  "; expected 0, 1, 2 or 5");
  }
  if (length > rest.size())
    return broken("field " + llvm::Twine(field.number) + " has " +
                  llvm::Twine(length) + " bytes; expected at most the " +
                  llvm::Twine(rest.size()) + " that are left");
  field.payload = rest.take_front(length);
  rest = rest.drop_front(length);
  field.whole = StringRef(begin, rest.data() - begin);
  return field;
}

namespace {
/// The messages of onnx.proto that can hold each other to any depth.
enum class Message {
  Model,
  Graph,
  Function,
  Node,
  Attribute,
  ValueInfo,
  Type,
  TypeOfElements,
  Map,
};
struct Nesting {
  Message holder;
  uint64_t field;
  Message held;
};
constexpr Nesting kNestings[] = {
    {Message::Model, kModelGraph, Message::Graph},
    {Message::Model, 25, Message::Function},
    {Message::Function, 7, Message::Node},
    {Message::Function, 11, Message::Attribute},
    {Message::Graph, 1, Message::Node},
    {Message::Graph, 11, Message::ValueInfo},
    {Message::Graph, 12, Message::ValueInfo},
    {Message::Graph, 13, Message::ValueInfo},
    {Message::Node, 5, Message::Attribute},
    {Message::Attribute, 6, Message::Graph},
    {Message::Attribute, 11, Message::Graph},
    {Message::Attribute, 14, Message::Type},
    {Message::Attribute, 15, Message::Type},
    {Message::ValueInfo, 2, Message::Type},
    {Message::Type, 4, Message::TypeOfElements},
    {Message::Type, 5, Message::Map},
    {Message::Type, 9, Message::TypeOfElements},
    {Message::TypeOfElements, 1, Message::Type},
    {Message::Map, 2, Message::Type},
};
} // namespace

/// `left`: messages that this one may hold inside each other.
static bool nestsDeeper(StringRef message, Message kind, unsigned left) {
  Reader reader(message, message.data());
  while (!reader.atEnd()) {
    llvm::Expected<Field> field = reader.next();
    if (!field) {
      llvm::consumeError(field.takeError());
      return false;
    }
    if (field->wire != kDelimited)
      continue;
    for (const Nesting &nesting : kNestings)
      if (nesting.holder == kind && nesting.field == field->number &&
          (left == 0 || nestsDeeper(field->payload, nesting.held, left - 1)))
        return true;
  }
  return false;
}

bool refold::onnx::nestsTooDeep(StringRef model) {
  return nestsDeeper(model, Message::Model, kDeepestNesting);
}

static void appendVarint(std::string &out, uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out.push_back(char(value | 0x80));
  out.push_back(char(value));
}

static void appendDelimited(std::string &out, uint64_t number,
                            StringRef payload) {
  appendVarint(out, number << 3 | kDelimited);
  appendVarint(out, payload.size());
  out.append(payload.data(), payload.size());
}

/// A tensor without its raw_data if that is large. Where the field stands more
/// than once the last one counts, as protobuf has it.
static llvm::Error scanTensor(StringRef message, const char *fileBegin,
                              std::string &rest, StringRef &payload) {
  Reader reader(message, fileBegin);
  while (!reader.atEnd()) {
    llvm::Expected<Field> field = reader.next();
    if (!field)
      return field.takeError();
    bool isRaw = field->number == kTensorRawData && field->wire == kDelimited;
    if (isRaw)
      payload = StringRef();
    if (isRaw && field->payload.size() >= kLargePayload)
      payload = field->payload;
    else
      rest.append(field->whole.data(), field->whole.size());
  }
  return llvm::Error::success();
}

static llvm::Error scanGraph(StringRef message, const char *fileBegin,
                             std::string &rest,
                             std::vector<StringRef> &payloads) {
  Reader reader(message, fileBegin);
  while (!reader.atEnd()) {
    llvm::Expected<Field> field = reader.next();
    if (!field)
      return field.takeError();
    if (field->number != kGraphInitializer || field->wire != kDelimited) {
      rest.append(field->whole.data(), field->whole.size());
      continue;
    }
    std::string tensor;
    StringRef payload;
    if (llvm::Error error =
            scanTensor(field->payload, fileBegin, tensor, payload))
      return error;
    payloads.push_back(payload);
    appendDelimited(rest, kGraphInitializer, tensor);
  }
  return llvm::Error::success();
}

llvm::Expected<ScannedModel> refold::onnx::scanModel(StringRef bytes) {
  ScannedModel result;
  Reader reader(bytes, bytes.data());
  while (!reader.atEnd()) {
    llvm::Expected<Field> field = reader.next();
    if (!field)
      return field.takeError();
    if (field->number != kModelGraph || field->wire != kDelimited) {
      result.rest.append(field->whole.data(), field->whole.size());
      continue;
    }
    std::string graph;
    if (llvm::Error error =
            scanGraph(field->payload, bytes.data(), graph, result.payloads))
      return std::move(error);
    appendDelimited(result.rest, kModelGraph, graph);
  }
  return result;
}
