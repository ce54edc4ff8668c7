// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Property: any bytes are parsed and analysed, or refused with an error that
// names a place in the source. Seeds: examples/ and test/Frontend/Fold/broken/.
#include "refold/Frontend/Fold/Program.h"
#include <cstdio>
#include <cstdlib>

using namespace refold::fold;

static void require(bool condition, const char *what) {
  if (condition)
    return;
  std::fprintf(stderr, "property broken: %s\n", what);
  std::abort();
}

static void checkError(const Error &error, std::string_view source) {
  size_t lines = 1;
  for (char c : source)
    lines += c == '\n';
  require(error.pos.line >= 1 && error.pos.line <= lines,
          "line is in the file");
  require(error.pos.column >= 1 && error.pos.column <= source.size() + 1,
          "column is in the file");
  require(error.message.rfind("found ", 0) == 0, "message says what was found");
  require(error.message.find("expected ") != std::string::npos,
          "message says what was expected");
}

static void checkProgram(const Program &program) {
  for (const Variable &value : program.values)
    for (AxisId axis : value.axes)
      require(program.fixedExtent(axis) ||
                  program.axes[program.extentOf(axis)].source,
              "every axis has an extent");
  for (const Statement &statement : program.statements)
    for (AxisId axis : program.nodes[statement.root].axes) {
      const Variable &value = program.values[statement.values.front()];
      bool isThere = statement.topk && statement.topk->over == axis;
      for (AxisId other : value.axes)
        isThere = isThere || other == axis;
      require(isThere, "a definition has the free axes of its expression");
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view source(reinterpret_cast<const char *>(data), size);
  Result<Ast> ast = parse(source);
  if (const Error *error = std::get_if<Error>(&ast)) {
    checkError(*error, source);
    return 0;
  }
  Result<Program> program = analyze(std::get<Ast>(ast));
  if (const Error *error = std::get_if<Error>(&program))
    checkError(*error, source);
  else
    checkProgram(std::get<Program>(program));
  return 0;
}
