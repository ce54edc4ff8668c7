// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/ObjectCode.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/ObjectCode.h"

using namespace refold;

struct LoadedCode::Impl {
  std::vector<std::unique_ptr<package::ObjectCode>> objects;
};

LoadedCode::LoadedCode() : impl(std::make_unique<Impl>()) {}
LoadedCode::~LoadedCode() = default;

llvm::Expected<std::shared_ptr<LoadedCode>>
LoadedCode::load(std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects) {
  std::shared_ptr<LoadedCode> loaded(new LoadedCode());
  for (const std::unique_ptr<llvm::MemoryBuffer> &buffer : objects) {
    llvm::StringRef bytes = buffer->getBuffer();
    auto object = package::ObjectCode::load({bytes.data(), bytes.size()});
    if (!object)
      return fail(object.error().code, object.error().message);
    loaded->impl->objects.push_back(std::move(*object));
  }
  return loaded;
}

llvm::Expected<KernelFunction> LoadedCode::find(llvm::StringRef name) {
  for (const std::unique_ptr<package::ObjectCode> &object : impl->objects)
    if (void *function = object->find((name + "_words").str()))
      return reinterpret_cast<KernelFunction>(function);
  return fail(ExitCode::Internal,
              "loading generated code: found no function '" + name + "'");
}
